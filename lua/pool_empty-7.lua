--[[
  Makes a pool that is fenced or missing an empty one, still fenced, whichever of its keys are left. What the ledger has
  not read yet stays.

  KEYS      the pool's seven (pool_prelude.lua)
  ARGV[3]   who rebuilds it: a random number
  ARGV[4]   status
  ARGV[5]   incarnation
  ARGV[6]   version
  ARGV[7]   number of the last parcel that it may have sent
  ARGV[8]   units refunded so far
  ARGV[9]   what they hold, in cents
  ARGV[10]  to ARGV[15]: rules and schedule, as pool_create-7.lua has them from its third argument on
  ARGV[16]  shard whose parcels are dealt with
  ARGV[17]  up to this number; and so on, two for each shard

  Reply     1: emptied; 0: the pool is neither fenced nor missing. Safe to repeat: what it was filled with is gone, so that
            the next part does not fit.
]]
local early = enter(0, 'fenced')
local sver = 1
if not early then
  if state.fenced == 0 then
    return answer('ok', 0)
  end
  -- Nobody shall take this for what it was.
  sver = state.sver + 1
elseif early[1] ~= 'absent' then
  return early
end
redis.call('UNLINK', STATE, POOL, CLAIMS, DEADLINES, COOLING, RETIRED)
make(10)
state.fenced, state.mender, state.status, state.sver = 1, tonumber(ARGV[3]), ARGV[4], sver
state.incarnation, state.ver, state.seq = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
state.refunded, state.refunded_cents = tonumber(ARGV[8]), tonumber(ARGV[9])
for place = 16, #ARGV, 2 do
  -- Of what came only the number is known.
  redis.call('HSET', STATE, 'i:' .. ARGV[place], ARGV[place + 1] .. '|0')
end
return answer('ok', 1)
