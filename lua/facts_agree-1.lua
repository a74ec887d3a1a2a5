--[[
  Writes the deployment's facts where none stand, and answers those that stand. All or none: two processes that start
  at once with different settings cannot each leave half of theirs.

  KEYS[1]  facts: hash
  ARGV[1]  schema
  ARGV[2]  time zone
  ARGV[3]  fingerprint of the hash key, 16 hex digits

  Reply    {schema, zone, fingerprint}. Safe to repeat.
]]
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'schema', ARGV[1], 'zone', ARGV[2], 'fingerprint', ARGV[3])
end
return redis.call('HMGET', KEYS[1], 'schema', 'zone', 'fingerprint')
