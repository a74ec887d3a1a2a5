--[[
  The first entries that are not acknowledged.

  KEYS[1]  state of the pool: hash
  KEYS[2]  log: stream
  ARGV[1]  how many at most, 1,000 at most
  ARGV[2]  for how long acknowledged entries stay, in milliseconds

  Reply    {incarnation, version, behind, entries}: of the pool at this instant; entries that are not acknowledged beyond
           these; entries as XRANGE has them. Nothing where there is no such pool. Writes a touch, so that a WAIT behind
           it says that what was read is replicated (docs/FAULTS.md A1, A5). Safe to repeat: the second time the same
           entries are pending.
]]
local log, limit = KEYS[2], tonumber(ARGV[1])
local pool = redis.call('HMGET', KEYS[1], 'incarnation', 'ver')
if not pool[1] then
  return false
end
redis.call('HINCRBY', KEYS[1], 'touch', 0)
-- Missing where a log was rebuilt by hand.
if not group(log) then
  redis.call('XGROUP', 'CREATE', log, 'ledger', '0', 'MKSTREAM')
end
local function read(after, count)
  local streams = redis.call('XREADGROUP', 'GROUP', 'ledger', 'drain', 'COUNT', count, 'STREAMS', log, after)
  return streams and streams[1][2] or {}
end
local entries, after, is_more = {}, '0', true
while is_more and #entries < limit do
  local asked, gone = limit - #entries, {}
  local found = read(after, asked)
  for _, entry in ipairs(found) do
    after = entry[1]
    if entry[2] then
      entries[#entries + 1] = entry
    else
      -- Removed while it was pending.
      gone[#gone + 1] = entry[1]
    end
  end
  if #gone > 0 then
    redis.call('XACK', log, 'ledger', unpack(gone))
  end
  is_more = #found == asked
end
if #entries < limit then
  for _, entry in ipairs(read('>', limit - #entries)) do
    entries[#entries + 1] = entry
  end
end
local about = group(log)
if #entries == 0 then
  trim(log, about, tonumber(ARGV[2]))
end
return { pool[1], pool[2], about.pending - #entries + undelivered(log, about), entries }
