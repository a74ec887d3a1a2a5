--[[
  Ends a claim before its time.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  user key, 16 bytes
  ARGV[4]  secret of the claim
  ARGV[5]  r: the user gives a held unit back; v: an operator takes a held or confirmed one away

  Reply    {word, record}: released; ended (it was over before); confirmed (users do not give those back);
           {unknown}: no such claim, or another secret. Safe to repeat: the second time it has ended.
]]
local early = enter(0)
if early then
  return early
end
local record = redis.call('HGET', CLAIMS, ARGV[3])
local claim = record and parse(record)
if not claim or claim.secret ~= ARGV[4] then
  return answer('ok', 'unknown')
elseif claim.state ~= 'h' and claim.state ~= 'c' then
  return answer('ok', 'ended', record)
elseif claim.state == 'c' and ARGV[5] == 'r' then
  return answer('ok', 'confirmed', record)
end
return answer('ok', 'released', finish_claim(ARGV[3], claim, ARGV[5], ARGV[5] == 'r' and 'release' or 'void'))
