--[[
  Puts an alias in the place of a user's name, in some entries of a log.

  KEYS[1]  state of the pool: hash
  KEYS[2]  log: stream
  ARGV[1]  id of the last entry that was looked at
  ARGV[2]  how many are looked at, at most
  ARGV[3]  the user's name
  ARGV[4]  the alias: another text

  Reply    {renamed, read, id}: how many had the name; how many were looked at, and the last one's id. An entry cannot be
           changed: one that is acknowledged is removed, any other gives way to a copy at the log's end, which keeps the
           time of the first (t). Writes a touch. Safe to repeat: the second time nobody has the name.
]]
local log, id, alias = KEYS[2], ARGV[1], ARGV[4]
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('HINCRBY', KEYS[1], 'touch', 0)
end
local about = group(log)
local last_ms, last_seq = parts(about and about['last-delivered-id'] or '0-0')
local function is_acknowledged(ms, seq)
  local is_delivered = ms < last_ms or (ms == last_ms and seq <= last_seq)
  return about and is_delivered and #redis.call('XPENDING', log, 'ledger', id, id, 1) == 0
end
local renamed = 0
local entries = redis.call('XRANGE', log, '(' .. id, '+', 'COUNT', ARGV[2])
for _, entry in ipairs(entries) do
  id = entry[1]
  local fields, name, said = entry[2], nil, nil
  for place = 1, #fields, 2 do
    if fields[place] == 'w' then
      name = place + 1
    elseif fields[place] == 't' then
      said = fields[place + 1]
    end
  end
  if name and fields[name] == ARGV[3] then
    local ms, seq = parts(id)
    if not is_acknowledged(ms, seq) then
      fields[name] = alias
      if not said then
        fields[#fields + 1] = 't'
        fields[#fields + 1] = text(ms)
      end
      redis.call('XADD', log, '*', unpack(fields))
      if about then
        redis.call('XACK', log, 'ledger', id)
      end
    end
    redis.call('XDEL', log, id)
    renamed = renamed + 1
  end
end
return { renamed, #entries, id }
