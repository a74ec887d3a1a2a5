--[[
  Gives an emptied pool a part of its content. Each user comes once.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  who rebuilds it
  ARGV[4]  number of the part, from 1
  ARGV[5]  how many claims it has
  ARGV[6]  how many units for the stock
  ARGV[7]  user key, 16 bytes
  ARGV[8]  claim record; and so on, two for each claim; then the units for the stock, then retired ones

  Reply    1: it is in, now or before; 0: somebody else rebuilds the pool, or a part before it is missing. Safe to repeat.
]]
local mender, part, claims, stock = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local early = enter(#ARGV - 6 - claims, 'fenced')
if early then
  return early
end
if state.mender ~= mender or mender == 0 or part > state.mended + 1 then
  return answer('ok', 0)
elseif part <= state.mended then
  return answer('ok', 1)
end
state.mended = part
local records, deadlines, units, retired = {}, {}, {}, {}
for place = 7, 6 + 2 * claims, 2 do
  local user, claim = ARGV[place], parse(ARGV[place + 1])
  records[#records + 1] = user
  records[#records + 1] = ARGV[place + 1]
  if claim.state == 'h' then
    deadlines[#deadlines + 1] = claim.deadline
    deadlines[#deadlines + 1] = user
    state.held = state.held + 1
  elseif claim.state == 'c' then
    state.confirmed = state.confirmed + 1
  end
  if claim.state == 'h' or claim.state == 'c' then
    state.taken_cents = state.taken_cents + cents(claim.unit)
  end
end
for place = 7 + 2 * claims, #ARGV do
  local list = place < 7 + 2 * claims + stock and units or retired
  list[#list + 1] = ARGV[place]
end
if #records > 0 then
  redis.call('HSET', CLAIMS, unpack(records))
end
if #deadlines > 0 then
  redis.call('ZADD', DEADLINES, unpack(deadlines))
end
append(POOL, units)
append(RETIRED, retired)
state.avail, state.retired = state.avail + #units, state.retired + #retired
return answer('ok', 1)
