--[[
  Sends units on their way to another pool. At most one parcel is on its way between two pools (docs/FAULTS.md A2).

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  shard they go to
  ARGV[4]  how many are wanted

  Reply    {word, seq|units}: new; open (a parcel sent before); {none}: no stock; {closing}. Safe to repeat: the second
           time the parcel is open.
]]
local early = enter(0)
if early then
  return early
end
local field = 'o:' .. ARGV[3]
local open = redis.call('HGET', STATE, field)
if open then
  return answer('ok', 'open', open)
elseif is_over() then
  return answer('ok', 'closing')
end
mature()
-- A full pool keeps half for its own users.
local gives = state.avail > 64 and math.floor(state.avail / 2) or state.avail
local units = take(POOL, math.min(gives, tonumber(ARGV[4]), MOST))
if #units == 0 then
  return answer('ok', 'none')
end
state.avail, state.sent = state.avail - #units, state.sent + 1
-- The time makes numbers rise even if the pool forgot them (docs/FAULTS.md A16).
state.seq = math.max(state.seq + 1, now_us)
local parcel = text(state.seq) .. '|' .. table.concat(units, ',')
redis.call('HSET', STATE, field, parcel)
changed(true)
return answer('ok', 'new', parcel)
