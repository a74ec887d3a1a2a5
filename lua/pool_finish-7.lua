--[[
  After closing: closed for good, if nothing is in stock, held, or on its way out.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV     floor only

  Reply    1: closed, now or before; 0: not yet. Safe to repeat.
]]
local early = enter(0)
if early then
  return early
end
if state.status == 'closing' and state.avail + state.cooling + state.held + state.sent == 0 then
  state.status = 'closed'
  changed(true)
end
return answer('ok', state.status == 'closed' and 1 or 0)
