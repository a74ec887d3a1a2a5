--[[
  The deployment's hash key: the one that stands, else the proposed one, which then stands.

  KEYS[1]  hash key: string, 32 hex digits
  ARGV[1]  proposed key

  Reply    the key that stands

  Followed by WAIT. A WAIT proves nothing after a script that wrote nothing (Redis from 7.2 on, Valkey), so a key that
  stands is written once more. Safe to repeat.
]]
local key = redis.call('GET', KEYS[1]) or ARGV[1]
redis.call('SET', KEYS[1], key)
return key
