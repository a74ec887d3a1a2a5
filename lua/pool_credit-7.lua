--[[
  Takes in what another pool sent, once, and serves wishes from the stock.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  shard that sent it
  ARGV[4]  number of the parcel
  ARGV[5]  its units, with commas between
  ARGV[6]  wishes, as pool_claim-7.lua has them from its third argument on

  Reply    {word, answers}: credited; refunded (the pool is closing); known (it came in before);
           conflict (another parcel came in under this number: nobody is served, docs/FAULTS.md A16). Safe to repeat:
           the second time it is known.
]]
local units, wishes = split(ARGV[5]), wishes_from(6)
local early = enter(math.max(#units, #wishes))
if early then
  return early
end
local field, seq, digest = 'i:' .. ARGV[3], tonumber(ARGV[4]), redis.sha1hex(ARGV[5])
local last = redis.call('HGET', STATE, field)
local how = 'credited'
if last then
  local last_seq, last_digest = string.match(last, '^(%d+)|(%x+)$')
  last_seq = tonumber(last_seq)
  -- What came before a pool was mended is known by its number only.
  if last_seq == seq and #last_digest == #digest and last_digest ~= digest then
    return answer('ok', 'conflict', {})
  elseif last_seq >= seq then
    how = 'known'
  end
end
if how == 'credited' then
  redis.call('HSET', STATE, field, text(seq) .. '|' .. digest)
  changed(true)
  if is_over() then
    how = 'refunded'
    refund(units)
  else
    append(POOL, units)
    state.avail = state.avail + #units
  end
end
return answer('ok', how, grant(wishes))
