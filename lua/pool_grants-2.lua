--[[
  Who was granted a unit since a place in a pool's log.

  KEYS[1]  state: hash (pool_prelude.lua)
  KEYS[2]  log: stream
  ARGV[1]  id of the last entry that is known
  ARGV[2]  how many entries are read at most; 0: none, only where the log ends

  Reply    {incarnation, run, added, last_id, read, id, users}: entries ever added to the log, and its last id; how many
           were read now, and the last one's id; of those that are grants the first 8 bytes of the user key. Nothing
           where there is no such pool. Read only.
]]
local pool = redis.call('HMGET', KEYS[1], 'incarnation', 'run')
if not pool[1] or redis.call('EXISTS', KEYS[2]) == 0 then
  return false
end
local about, fields = {}, redis.call('XINFO', 'STREAM', KEYS[2])
for place = 1, #fields, 2 do
  about[fields[place]] = fields[place + 1]
end
local entries = {}
if ARGV[2] ~= '0' then
  entries = redis.call('XRANGE', KEYS[2], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
end
local users, id = {}, ARGV[1]
for _, entry in ipairs(entries) do
  id = entry[1]
  local kind, user
  for field = 1, #entry[2], 2 do
    if entry[2][field] == 'k' then
      kind = entry[2][field + 1]
    elseif entry[2][field] == 'u' then
      user = entry[2][field + 1]
    end
  end
  if kind == 'grant' then
    users[#users + 1] = string.sub(user, 1, 8)
  end
end
return { pool[1], pool[2], about['entries-added'], about['last-generated-id'], #entries, id, table.concat(users) }
