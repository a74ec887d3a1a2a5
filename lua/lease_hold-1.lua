--[[
  Asks for a lease, or for more time of one, or gives it back.

  KEYS[1]  lease: string, its holder
  ARGV[1]  who asks
  ARGV[2]  lease time in milliseconds, from now on; 0: it is given back

  Reply    1: granted, renewed or given back; 0: somebody else has it, or there is nothing to give back. Safe to repeat.
]]
if redis.call('GET', KEYS[1]) == ARGV[1] then
  -- A time of 0 ends it.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
elseif ARGV[2] == '0' then
  return 0
end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
