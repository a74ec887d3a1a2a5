--[[
  Makes a pool, without stock.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  how long claims are held, in milliseconds; 0: they are confirmed at once
  ARGV[4]  how long "sold out" may be said from memory, in milliseconds
  ARGV[5]  version of the schedule
  ARGV[6]  when the pool opens, in milliseconds since 1970
  ARGV[7]  when it closes
  ARGV[8]  1: paused

  Reply    1: made; 0: it was there. absent: some of its keys are there without its state, so that something was lost,
           and a new pool would sell units twice (docs/FAULTS.md F20)
]]
local early = enter(0)
if not early then
  return answer('ok', 0)
elseif early[1] ~= 'absent' or redis.call('EXISTS', unpack(KEYS)) > 0 then
  return early
end
for _, name in ipairs(NUMBERS) do
  state[name] = 0
end
state.status, state.run = 'open', string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
state.incarnation, state.ver, state.sver = 1, 1, 1
state.hold, state.interval = tonumber(ARGV[3]), tonumber(ARGV[4])
state.schedule, state.opens, state.closes = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
state.paused = tonumber(ARGV[8])
-- A value this long makes the hash a table; a short one would be a list, searched from its start for each field.
redis.call('HSET', STATE, 'touch', 0, 'about', 'a pool of headcount: units of a campaign and who has them; see lua/pool_prelude.lua')
redis.call('RPUSH', POOL, PLACEHOLDER)
redis.call('HSET', CLAIMS, PLACEHOLDER, PLACEHOLDER)
redis.call('ZADD', DEADLINES, '9000000000000000', PLACEHOLDER)
redis.call('ZADD', COOLING, '9000000000000000', PLACEHOLDER)
-- The drain's group, so that the stream is there while it is empty.
redis.call('XGROUP', 'CREATE', LOG, 'ledger', '0', 'MKSTREAM')
redis.call('RPUSH', RETIRED, PLACEHOLDER)
return answer('ok', 1)
