--[[
  Forgets a parcel that has arrived.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  shard it went to
  ARGV[4]  seq|units: all of it must be as it was sent

  Reply    1: forgotten; 0: no such parcel is on its way. Safe to repeat.
]]
local early = enter(0)
if early then
  return early
end
local field = 'o:' .. ARGV[3]
if redis.call('HGET', STATE, field) ~= ARGV[4] then
  return answer('ok', 0)
end
redis.call('HDEL', STATE, field)
state.sent = state.sent - 1
changed(true)
return answer('ok', 1)
