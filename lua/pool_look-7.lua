--[[
  A user's last claim.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  user key, 16 bytes

  Reply    the record, or nothing. Writes a touch: what it saw may not be replicated yet (docs/FAULTS.md A1).
]]
local early = enter(0, 'frozen')
if early then
  return early
end
return answer('ok', redis.call('HGET', CLAIMS, ARGV[3]))
