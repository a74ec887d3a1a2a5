--[[
  Publishes an answer for all processes, unless an as new one stands.

  KEYS[1]  published answer: string "<as_of_ms>:<body>"
  ARGV[1]  as_of_ms of the new answer
  ARGV[2]  its body
  ARGV[3]  how long it is kept, in milliseconds

  Reply    1: published. 0: the published one is as new or newer, and stays

  An answer also makes way when it is over 2 s old or lies in the future by this server's clock: after a failover to a
  server whose clock is behind, counts would else stand still until that clock has caught up. Both are what can be
  seen here of another server's run. Safe to repeat.
]]
local standing = redis.call('GET', KEYS[1])
if standing then
  local as_of_ms = tonumber(string.match(standing, '^(%d+):'))
  if as_of_ms and as_of_ms >= tonumber(ARGV[1]) then
    local time = redis.call('TIME')
    local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
    if as_of_ms <= now_ms and now_ms - as_of_ms <= 2000 then
      return 0
    end
  end
end
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. ARGV[2], 'PX', ARGV[3])
return 1
