--[[
  Asks for a lease, or for more time of one.

  KEYS[1]  lease: string, its holder
  ARGV[1]  who asks
  ARGV[2]  lease time in milliseconds, from now on

  Reply    1: granted, or renewed; 0: somebody else has it. Safe to repeat.
]]
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
