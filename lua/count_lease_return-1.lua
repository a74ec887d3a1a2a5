--[[
  Gives a lease back before its time, after a failure.

  KEYS[1]  lease: string, the holder's token
  ARGV[1]  token of the process that gives it back

  Reply    1: given back. 0: it is somebody else's, or over
]]
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
