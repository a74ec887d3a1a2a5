--[[
  The pool's numbers at one instant.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  1: with the number of the last parcel of each donor

  Reply    {status, schedule, run, sver, avail, cooling, ready_ms, held, deadline_ms, confirmed, retired, refunded,
           taken_cents, refunded_cents, operation, chunk, op_total, sent, came}: avail has the cooling units that are ready, cooling the others;
           times are -1 where there is none; sent and came are lists {shard, seq|units, ...}, {shard, seq, ...}
]]
local early = enter(0, 'frozen')
if early then
  return early
end
-- The first real member from a place on, or -1.
local function time_of(set, place)
  local found = redis.call('ZRANGE', set, place, place, 'WITHSCORES')
  return found[1] ~= PLACEHOLDER and tonumber(found[2]) or -1
end
local ready = redis.call('ZCOUNT', COOLING, '-inf', text(now_ms))
local sent, came = {}, {}
if state.sent > 0 or ARGV[3] == '1' then
  local fields = redis.call('HGETALL', STATE)
  for place = 1, #fields, 2 do
    local kind, shard = string.match(fields[place], '^([io]):(%d+)$')
    if kind == 'o' then
      sent[#sent + 1] = shard
      sent[#sent + 1] = fields[place + 1]
    elseif kind == 'i' and ARGV[3] == '1' then
      came[#came + 1] = shard
      came[#came + 1] = string.match(fields[place + 1], '^%d+')
    end
  end
end
return answer('ok', state.status, state.schedule, state.run, state.sver, state.avail + ready, state.cooling - ready,
  time_of(COOLING, ready), state.held, time_of(DEADLINES, 0), state.confirmed, state.retired, state.refunded,
  state.taken_cents, state.refunded_cents, state.operation, state.chunk, state.op_total, sent, came)
