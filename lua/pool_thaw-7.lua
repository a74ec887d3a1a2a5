--[[
  Ends a freeze.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV     floor only

  Reply    1. fenced, where the pool is itself one to be put right. Safe to repeat.
]]
local early = enter(0, 'fenced')
if early then
  return early
elseif state.fenced == 1 then
  return answer('fenced')
end
state.frozen = 0
return answer('ok', 1)
