--[[
  Confirms a claim that is held; also after its deadline, as long as nobody has expired it.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  user key, 16 bytes
  ARGV[4]  secret of the claim

  Reply    {word, record}: confirmed (now or before), late (it ended before); {unknown}: no such claim, or another secret.
           Safe to repeat.
]]
local early = enter(0)
if early then
  return early
end
local record = redis.call('HGET', CLAIMS, ARGV[3])
local claim = record and parse(record)
if not claim or claim.secret ~= ARGV[4] then
  return answer('ok', 'unknown')
elseif claim.state == 'c' then
  return answer('ok', 'confirmed', record)
elseif claim.state ~= 'h' then
  return answer('ok', 'late', record)
end
changed(false)
redis.call('ZREM', DEADLINES, ARGV[3])
state.held, state.confirmed = state.held - 1, state.confirmed + 1
claim.state, claim.deadline, claim.ver = 'c', '0', text(state.ver)
record = written(claim)
redis.call('HSET', CLAIMS, ARGV[3], record)
log('confirm', 'u', ARGV[3], 'r', record)
return answer('ok', 'confirmed', record)
