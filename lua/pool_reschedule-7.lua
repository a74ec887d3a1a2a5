--[[
  Takes over opening hours and pause, unless the pool knows newer ones.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  version of the schedule
  ARGV[4]  when the pool opens, in milliseconds since 1970
  ARGV[5]  when it closes
  ARGV[6]  1: paused

  Reply    1: taken over; 0: not newer. Safe to repeat: the second time it is not newer.
]]
local early = enter(0)
if early then
  return early
end
if tonumber(ARGV[3]) <= state.schedule then
  return answer('ok', 0)
end
state.schedule, state.opens, state.closes = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
state.paused = tonumber(ARGV[6])
changed(true)
return answer('ok', 1)
