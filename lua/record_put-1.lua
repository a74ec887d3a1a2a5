--[[
  Writes a record if the version that stands is the expected one.

  KEYS[1]  record: hash, v = version, b = body
  ARGV[1]  expected version; 0: there is no record yet
  ARGV[2]  new body

  Reply    {1, version}        written
           {0, version, body}  somebody else was first: what stands
           {0}                 somebody else was first: nothing stands

  Followed by WAIT. A WAIT proves nothing after a script that wrote nothing (Redis from 7.2 on, Valkey), so what
  stands is touched also where it is not changed. NOT safe to repeat: the second call finds the first one's version.
]]
local standing = redis.call('HMGET', KEYS[1], 'v', 'b')
local version = tonumber(standing[1]) or 0

if version ~= tonumber(ARGV[1]) then
  if version == 0 then
    return { 0 }
  end
  redis.call('HINCRBY', KEYS[1], 'v', 0)
  return { 0, version, standing[2] }
end
redis.call('HSET', KEYS[1], 'v', version + 1, 'b', ARGV[2])
return { 1, version + 1 }
