--[[
  The ledger has these entries.

  KEYS[1]  log: stream
  ARGV[1]  for how long acknowledged entries stay, in milliseconds
  ARGV[2]  id of an entry, and so on; 1,000 at most

  Reply    how many were pending. Safe to repeat.
]]
local log = KEYS[1]
local about = group(log)
if not about then
  return 0
end
local count = redis.call('XACK', log, 'ledger', unpack(ARGV, 2))
trim(log, about, tonumber(ARGV[1]))
return count
