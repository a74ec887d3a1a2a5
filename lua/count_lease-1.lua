--[[
  Asks to be the one process that computes the next answer to a question.

  KEYS[1]  lease: string, the holder's token
  ARGV[1]  token of the process that asks
  ARGV[2]  lease time in milliseconds

  Reply    {granted, now_ms, left_ms}
           granted  1: the caller computes; now_ms, read before any sketch is, is the as_of of its answer
                    0: somebody else does, for left_ms more at most

  Safe to repeat: who holds the lease is granted it again, with the time that was left.
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return { 1, now_ms, tonumber(ARGV[2]) }
end
local granted = 0
if redis.call('GET', KEYS[1]) == ARGV[1] then
  granted = 1
end
-- PTTL is negative only for a key without an expiry, which this script never leaves.
return { granted, now_ms, math.max(redis.call('PTTL', KEYS[1]), 0) }
