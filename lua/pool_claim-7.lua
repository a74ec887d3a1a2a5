--[[
  Serves wishes for a unit each.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  user key, 16 bytes
  ARGV[4]  the user as sent
  ARGV[5]  secret of the claim that would be made
  ARGV[6]  digest of the Idempotency-Key, or nothing; and so on, four for each wish

  Reply    a list of one text for each wish (grant, in pool_prelude.lua). Safe to repeat: the second time the user has a
           claim, with this secret.
]]
local early = enter((#ARGV - 2) / 4)
if early then
  return early
end
return answer('ok', grant(wishes_from(3)))
