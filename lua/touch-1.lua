--[[
  Writes into a hash without changing it, for a WAIT to wait for (docs/FAULTS.md A1).

  KEYS[1]  hash
  ARGV[1]  a field of it that is a number

  Reply    1: written; 0: there is no such hash, and none is begun. Safe to repeat.
]]
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
redis.call('HINCRBY', KEYS[1], ARGV[1], 0)
return 1
