--[[
  Says that a process admits on a subject, and counts those that said so lately.

  KEYS[1]  attendance: sorted set, process -> server's milliseconds when it last attended
  ARGV[1]  name of the process
  ARGV[2]  window in milliseconds

  Reply    how many processes attended within the window, this one included

  The set goes two windows after the last call. Safe to repeat.
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local window_ms = tonumber(ARGV[2])

redis.call('ZADD', KEYS[1], now_ms, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_ms - window_ms)
redis.call('PEXPIRE', KEYS[1], 2 * window_ms)
return redis.call('ZCARD', KEYS[1])
