--[[
  What scripts of an outbox share; stands before each outbox_*.lua. An outbox is a pool's log (pool_prelude.lua), read by
  the consumer group `ledger` under one consumer's name, so that whoever reads next gets what was not acknowledged.

  KEYS   the script's own
  ARGV   the script's own
  Reply  the script's own

  They run also where memory is full: a drain that stood still then would leave it full.
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local function text(number)
  return string.format('%.0f', number)
end

-- An entry's id in its two numbers.
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

-- What the server knows of the group; nil: there is none.
local function group(log)
  if redis.call('EXISTS', log) == 0 then
    return nil
  end
  for _, fields in ipairs(redis.call('XINFO', 'GROUPS', log)) do
    local about = {}
    for place = 1, #fields, 2 do
      about[fields[place]] = fields[place + 1]
    end
    if about.name == 'ledger' then
      return about
    end
  end
  return nil
end

-- How many entries the group has not seen, and the id of the first. None is said for certain; the rest is the server's
-- count, which it does not have where entries behind were removed: then up to a thousand are counted.
local function undelivered(log, about)
  local last = about and about['last-delivered-id'] or '0-0'
  local first = redis.call('XRANGE', log, '(' .. last, '+', 'COUNT', 1)[1]
  if not first then
    return 0, nil
  end
  local count = about and about.lag
  if not count then
    count = #redis.call('XRANGE', log, '(' .. last, '+', 'COUNT', 1000)
    if count == 1000 then
      count = redis.call('XLEN', log)
    end
  end
  return math.max(count, 1), first[1]
end

-- Removes what is acknowledged and older than so long: whoever follows the log of grants has read it by then
-- (docs/FAULTS.md F4). Whole nodes of the stream only, which costs the server nothing to speak of.
local function trim(log, about, kept_ms)
  local pending = redis.call('XPENDING', log, 'ledger')
  local oldest = pending[1] > 0 and pending[2] or about['last-delivered-id']
  local since = now_ms - kept_ms
  redis.call('XTRIM', log, 'MINID', '~', parts(oldest) < since and oldest or text(since))
end
