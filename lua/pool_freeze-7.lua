--[[
  Lets the pool keep still while another one is put right: it serves only steps that look, and those that mend.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  for how long, in milliseconds
  ARGV[4]  how far clocks of servers may differ, in microseconds
  ARGV[5]  a shard that is lost, and so on: what it sent and has not come in yet will not come in any more, because its
           units are given out anew (docs/FAULTS.md A16)

  Reply    1. fenced, where the pool is itself one to be put right. Safe to repeat: the longer freeze holds.
]]
local early = enter(0, 'fenced')
if early then
  return early
elseif state.fenced == 1 then
  return answer('fenced')
end
state.frozen = math.max(state.frozen, now_ms + tonumber(ARGV[3]))
local burnt = now_us + tonumber(ARGV[4])
for place = 5, #ARGV do
  local field = 'i:' .. ARGV[place]
  local last = redis.call('HGET', STATE, field)
  if not last or tonumber(string.match(last, '^%d+')) < burnt then
    redis.call('HSET', STATE, field, text(burnt) .. '|0')
  end
end
return answer('ok', 1)
