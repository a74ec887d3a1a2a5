--[[
  How far the ledger is behind.

  KEYS[1]  state of the pool: hash
  KEYS[2]  log: stream
  ARGV     none

  Reply    {entries, age_ms}: entries that are not acknowledged, and for how long the oldest of them has waited. Nothing
           where there is no such pool. Read only.
]]
local log = KEYS[2]
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
local about = group(log)
local count, oldest = undelivered(log, about)
if about and about.pending > 0 then
  count, oldest = count + about.pending, redis.call('XPENDING', log, 'ledger')[2]
end
return { count, oldest and math.max(now_ms - parts(oldest), 0) or 0 }
