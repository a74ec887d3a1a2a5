--[[
  No more claims: units of the pool and cooling ones become refunds. Retired ones stay retired.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  how many of each at most

  Reply    units that are still in stock. Safe to repeat.
]]
local limit = tonumber(ARGV[3])
local early = enter(limit)
if early then
  return early
end
if state.status == 'closed' then
  return answer('ok', 0)
end
state.status = 'closing'
changed(true)
local cooling = {}
local cooled = math.min(state.cooling, limit)
if cooled > 0 then
  -- The placeholder is behind them all.
  cooling = redis.call('ZRANGE', COOLING, 0, cooled - 1)
  redis.call('ZREM', COOLING, unpack(cooling))
  state.cooling = state.cooling - cooled
end
local units = take(POOL, math.min(state.avail, limit))
state.avail = state.avail - #units
refund(units)
refund(cooling)
return answer('ok', state.avail + state.cooling)
