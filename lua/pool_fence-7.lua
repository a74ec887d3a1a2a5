--[[
  Stops the pool for everybody until it is rebuilt.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV     floor only

  Reply    1. Safe to repeat.
]]
local early = enter(0, 'fenced')
if early then
  return early
end
state.fenced = 1
return answer('ok', 1)
