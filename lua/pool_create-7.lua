--[[
  Makes a pool, without stock.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  how long claims are held, in milliseconds; 0: they are confirmed at once
  ARGV[4]  how long "sold out" may be said from memory, in milliseconds
  ARGV[5]  version of the schedule
  ARGV[6]  when the pool opens, in milliseconds since 1970
  ARGV[7]  when it closes
  ARGV[8]  1: paused

  Reply    1: made; 0: it was there. absent: some of its keys are there without its state, so that something was lost,
           and a new pool would sell units twice (docs/FAULTS.md F20)
]]
local early = enter(0)
if not early then
  return answer('ok', 0)
elseif early[1] ~= 'absent' or redis.call('EXISTS', unpack(KEYS)) > 0 then
  return early
end
make(3)
return answer('ok', 1)
