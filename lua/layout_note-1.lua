--[[
  Notes that a process writes a counter with so many shards.

  KEYS[1]  layout: hash, c = coarsest, f = finest shard count that ever wrote the counter
  ARGV[1]  shard count
  ARGV[2]  when the layout goes, in seconds since 1970; empty: never

  Reply    {coarsest, finest} as they now stand. Safe to repeat.

  One key only: while a slot is on the move, scripts with several keys are refused (TRYAGAIN) as long as one of them
  is absent, and the first note of a new day must not wait for the end of a move.
]]
local shards = tonumber(ARGV[1])
local noted = redis.call('HMGET', KEYS[1], 'c', 'f')
local coarsest = math.min(tonumber(noted[1]) or shards, shards)
local finest = math.max(tonumber(noted[2]) or shards, shards)

if coarsest ~= tonumber(noted[1]) or finest ~= tonumber(noted[2]) then
  redis.call('HSET', KEYS[1], 'c', coarsest, 'f', finest)
end
if ARGV[2] ~= '' then
  redis.call('EXPIREAT', KEYS[1], ARGV[2], 'NX')
  redis.call('EXPIREAT', KEYS[1], ARGV[2], 'GT')
end
return { coarsest, finest }
