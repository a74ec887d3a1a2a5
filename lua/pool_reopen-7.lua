--[[
  The pool is whole, and serves again.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  who rebuilt it

  Reply    1: it serves, now or before; 0: somebody else rebuilds it. Safe to repeat.
]]
local early = enter(0, 'fenced')
if early then
  return early
end
if state.mender ~= tonumber(ARGV[3]) or state.mender == 0 then
  return answer('ok', state.fenced == 0 and state.mender == 0 and 1 or 0)
end
state.fenced, state.seen, state.mender, state.mended = 0, 0, 0, 0
changed(true)
return answer('ok', 1)
