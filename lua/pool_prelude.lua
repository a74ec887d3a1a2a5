--[[
  What all steps of a pool share; stands before each pool_*-7.lua. A step does what src/domain/quota/ does, to the letter:
  tests/integration/contract/pools.rs compares them.

  KEYS[1]  state: hash of the fields below; o:<home> = seq|units on their way there, i:<donor> = seq|SHA-1 of the
           units that came in last (any other digest: nobody knows their SHA-1)
  KEYS[2]  pool: list of units, the next one first
  KEYS[3]  claims: hash, user key -> claim record
  KEYS[4]  deadlines: sorted set of users who hold a unit, score = when the hold expires
  KEYS[5]  cooling: sorted set of units, score = when they may be claimed
  KEYS[6]  log: stream, the outbox; i = incarnation, v = version, k = kind, u = user key, w = the user as sent (grants),
           r = record or unit, t = when it was said, in milliseconds (copies, outbox_rename-2.lua)
  KEYS[7]  retired: list of units, the first one comes back first
  ARGV[1]  floor: incarnation that the caller knows
  ARGV[2]  floor: version that the caller knows to be replicated

  Reply    {how, now_us, incarnation, version, ...}, where how is
           absent     there is no such pool
           fenced     it has lost something
           admitting  its server is a new one, and hears floors for a second
           frozen     another pool is put right; this one keeps still until then
           ok         the step was taken; what follows is the step's own

  Units are written number#turn, packets number#turn:cents.

  All seven keys are there from the first step to the last, each with a placeholder _ where it would be empty (in lists
  at the right end, in sorted sets behind every real score): while a slot moves, a script that names an absent key gets
  TRYAGAIN until the move is over (docs/FAULTS.md A15).

  Each step writes something on every path, if only HINCRBY touch 0: a WAIT after a script that wrote nothing proves
  nothing on Redis from 7.2 on and on Valkey (docs/FAULTS.md A1). All checks come before the first write, as a failed
  script is not rolled back (docs/FAULTS.md F2). Numbers stay below 2^53 and are written by text(): Lua's own way would
  round them to 14 digits.
]]
local STATE, POOL, CLAIMS, DEADLINES, COOLING, LOG, RETIRED = unpack(KEYS)
local MOST = 256
local PLACEHOLDER = '_'

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- Behind status and run, which are texts.
local NUMBERS = {
  'fenced', 'seen', 'admitting', 'incarnation', 'ver', 'sver', 'seq', 'hold', 'interval', 'schedule', 'opens', 'closes',
  'paused', 'avail', 'cooling', 'held', 'confirmed', 'retired', 'refunded', 'sent', 'operation', 'chunk', 'op_chunk',
  'op_total', 'taken_cents', 'refunded_cents', 'frozen', 'mender', 'mended',
}
local state, before = {}, {}

local function text(number)
  return string.format('%.0f', number)
end

-- The end of each step: saves what changed, touches the pool where nothing did.
local function answer(how, ...)
  local changes = {}
  for name, value in pairs(state) do
    if value ~= before[name] then
      changes[#changes + 1] = name
      changes[#changes + 1] = type(value) == 'number' and text(value) or value
    end
  end
  if #changes > 0 then
    redis.call('HSET', STATE, unpack(changes))
  else
    redis.call('HINCRBY', STATE, 'touch', 0)
  end
  return { how, now_us, state.incarnation, state.ver, ... }
end

-- Reads the state and lets the step pass, or returns what it must answer. size: users or units the step names.
-- passes: 'frozen' for steps that look, which a frozen pool serves; 'fenced' for those that mend, which each pool serves.
local function enter(size, passes)
  if size > MOST then
    return redis.error_reply('ERR a step of more than ' .. MOST .. ' users or units')
  end
  local values = redis.call('HMGET', STATE, 'status', 'run', unpack(NUMBERS))
  if not values[1] then
    return { 'absent', now_us, 0, 0 }
  end
  state.status, state.run = values[1], values[2]
  for place, name in ipairs(NUMBERS) do
    -- An older pool lacks some.
    state[name] = tonumber(values[place + 2] or 0)
  end
  for name, value in pairs(state) do
    before[name] = value
  end

  local known = tonumber(ARGV[2])
  if tonumber(ARGV[1]) == state.incarnation and known > state.ver then
    state.seen = math.max(state.seen, known)
  end
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  if state.fenced == 0 and state.run ~= run then
    state.run, state.admitting = run, now_ms + 1000
  end
  if state.fenced == 0 and now_ms < state.admitting then
    return answer('admitting')
  end
  -- Sticky: the first caller who knows better stops the pool for all.
  if state.seen > state.ver then
    state.fenced = 1
  end
  if passes == 'fenced' then
    return nil
  elseif state.fenced == 1 then
    return answer('fenced')
  elseif now_ms < state.frozen and passes ~= 'frozen' then
    return answer('frozen')
  end
  return nil
end

-- Begins the keys of a pool without units. hold, interval and the schedule are arguments from a place on. A log that is
-- there stays, with its group.
local function make(first)
  state, before = { status = 'open', run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') }, {}
  for _, name in ipairs(NUMBERS) do
    state[name] = 0
  end
  state.incarnation, state.ver, state.sver = 1, 1, 1
  for place, name in ipairs({ 'hold', 'interval', 'schedule', 'opens', 'closes', 'paused' }) do
    state[name] = tonumber(ARGV[first + place - 1])
  end
  -- A value this long makes the hash a table; a short one would be a list, searched from its start for each field.
  redis.call('HSET', STATE, 'touch', 0, 'about', 'a pool of headcount: units of a campaign and who has them; see lua/pool_prelude.lua')
  redis.call('RPUSH', POOL, PLACEHOLDER)
  redis.call('HSET', CLAIMS, PLACEHOLDER, PLACEHOLDER)
  redis.call('ZADD', DEADLINES, '9000000000000000', PLACEHOLDER)
  redis.call('ZADD', COOLING, '9000000000000000', PLACEHOLDER)
  -- The drain's group, so that the stream is there while it is empty. An error: it has the group.
  redis.pcall('XGROUP', 'CREATE', LOG, 'ledger', '0', 'MKSTREAM')
  redis.call('RPUSH', RETIRED, PLACEHOLDER)
end

-- Something changed; stock: units may have appeared or vanished.
local function changed(stock)
  state.ver = state.ver + 1
  if stock then
    state.sver = state.sver + 1
  end
end

local function is_over()
  return state.status ~= 'open'
end

local function log(...)
  redis.call('XADD', LOG, '*', 'i', text(state.incarnation), 'v', text(state.ver), 'k', ...)
end

-- Adds units at the end of a list, before its placeholder.
local function append(list, units)
  if #units > 0 then
    redis.call('RPOP', list)
    redis.call('RPUSH', list, unpack(units))
    redis.call('RPUSH', list, PLACEHOLDER)
  end
end

-- Takes as many units from the front of a list; there must be so many.
local function take(list, count)
  return count > 0 and redis.call('LPOP', list, count) or {}
end

-- Cooling units whose time has come join the stock.
local function mature()
  local ready = redis.call('ZRANGEBYSCORE', COOLING, '-inf', text(now_ms), 'LIMIT', 0, MOST)
  if #ready > 0 then
    redis.call('ZREM', COOLING, unpack(ready))
    append(POOL, ready)
    state.cooling = state.cooling - #ready
    state.avail = state.avail + #ready
  end
end

-- Lets units cool for two intervals: the longest memory of "sold out", twice.
local function cool(units)
  if #units == 0 then
    return
  end
  local ready, scored = text(now_ms + 2 * state.interval), {}
  for _, unit in ipairs(units) do
    scored[#scored + 1] = ready
    scored[#scored + 1] = unit
  end
  redis.call('ZADD', COOLING, unpack(scored))
  state.cooling = state.cooling + #units
end

-- What a unit holds: 0, if it is no packet.
local function cents(unit)
  return tonumber(string.match(unit, ':(%d+)$') or 0)
end

-- Units that will never be claimed.
local function refund(units)
  for _, unit in ipairs(units) do
    state.refunded, state.refunded_cents = state.refunded + 1, state.refunded_cents + cents(unit)
    log('refund', 'r', unit)
  end
end

local function split(units)
  local list = {}
  for unit in string.gmatch(units, '[^,]+') do
    list[#list + 1] = unit
  end
  return list
end

-- A claim record: state|unit|secret|claim number|claimed|deadline|version|idempotency digest
local function parse(record)
  local parts = {}
  for part in string.gmatch(record .. '|', '([^|]*)|') do
    parts[#parts + 1] = part
  end
  return { state = parts[1], unit = parts[2], secret = parts[3], claim_no = parts[4], claimed = parts[5],
    deadline = parts[6], ver = parts[7], idem = parts[8] }
end

local function written(claim)
  return table.concat({ claim.state, claim.unit, claim.secret, claim.claim_no, claim.claimed, claim.deadline, claim.ver,
    claim.idem }, '|')
end

-- Puts an end to a live claim. Its unit cools, with its turn raised, or is a refund from closing on.
local function finish_claim(user, claim, letter, kind)
  changed(false)
  if claim.state == 'h' then
    redis.call('ZREM', DEADLINES, user)
    state.held = state.held - 1
  else
    state.confirmed = state.confirmed - 1
  end
  state.taken_cents = state.taken_cents - cents(claim.unit)
  claim.state, claim.ver = letter, text(state.ver)
  local record = written(claim)
  redis.call('HSET', CLAIMS, user, record)
  log(kind, 'u', user, 'r', record)
  local number, turn, rest = string.match(claim.unit, '^(%d+)#(%d+)(.*)$')
  local unit = number .. '#' .. text(turn + 1) .. rest
  if is_over() then
    changed(false)
    refund({ unit })
  else
    cool({ unit })
    state.sver = state.sver + 1
  end
  return record
end

-- What the user's record or the hours say to a wish; nil: it depends on the stock.
local function known(record, wish)
  if record then
    local claim = parse(record)
    if claim.state == 'h' or claim.state == 'c' then
      return 'a' .. record
    elseif claim.state == 'v' then
      return 'v' .. record
    elseif claim.secret == wish.secret or (wish.idem ~= '' and claim.idem == wish.idem) then
      -- Else a delayed first try would get a second unit after the first was given back (docs/FAULTS.md A19).
      return 'e' .. record
    end
  end
  if is_over() or now_ms >= state.closes then
    return 'c'
  elseif state.paused == 1 then
    return 'p'
  elseif now_ms < state.opens then
    return 'n'
  end
  return nil
end

-- Grants one unit to each of these wishes, of different users; `records`: what stood before.
local function serve(wishes, records)
  local units = take(POOL, math.min(#wishes, state.avail))
  state.avail = state.avail - #units
  local claims, deadlines, served = {}, {}, {}
  for place, unit in ipairs(units) do
    local wish = wishes[place]
    changed(false)
    local last = records[place]
    local claim_no = last and parse(last).claim_no + 1 or 1
    local deadline = state.hold > 0 and text(now_ms + state.hold) or '0'
    local record = written({ state = state.hold > 0 and 'h' or 'c', unit = unit, secret = wish.secret,
      claim_no = text(claim_no), claimed = text(now_ms), deadline = deadline, ver = text(state.ver), idem = wish.idem })
    claims[#claims + 1] = wish.user
    claims[#claims + 1] = record
    if state.hold > 0 then
      deadlines[#deadlines + 1] = deadline
      deadlines[#deadlines + 1] = wish.user
      state.held = state.held + 1
    else
      state.confirmed = state.confirmed + 1
    end
    state.taken_cents = state.taken_cents + cents(unit)
    log('grant', 'u', wish.user, 'w', wish.raw, 'r', record)
    served[wish.user] = record
  end
  if #claims > 0 then
    redis.call('HSET', CLAIMS, unpack(claims))
  end
  if #deadlines > 0 then
    redis.call('ZADD', DEADLINES, unpack(deadlines))
  end
  return served
end

-- Wishes as arguments from a place on: user key, user as sent, secret, idempotency digest, and so on.
local function wishes_from(first)
  local wishes = {}
  for place = first, #ARGV, 4 do
    wishes[#wishes + 1] =
      { user = ARGV[place], raw = ARGV[place + 1], secret = ARGV[place + 2], idem = ARGV[place + 3] }
  end
  return wishes
end

-- Serves wishes in their order. One text for each: g granted, a already, e ended, v voided, each with the record; d dry,
-- n not open, p paused, c closed. The user's record comes first, then the hours, then the stock.
local function grant(wishes)
  if #wishes == 0 then
    return {}
  end
  local users = {}
  for place, wish in ipairs(wishes) do
    users[place] = wish.user
  end
  local records = redis.call('HMGET', CLAIMS, unpack(users))
  local answers, first, open, last = {}, {}, {}, {}
  for place, wish in ipairs(wishes) do
    answers[place] = known(records[place], wish)
    if not answers[place] and not first[wish.user] then
      first[wish.user] = place
      open[#open + 1] = wish
      last[#last + 1] = records[place]
    end
  end
  if #open > 0 then
    mature()
  end
  local served = serve(open, last)
  for place, wish in ipairs(wishes) do
    local record = served[wish.user]
    if not answers[place] then
      -- A second wish of a user in the same step hears what the first one got.
      answers[place] = record and (first[wish.user] == place and 'g' or 'a') .. record or 'd'
    end
  end
  return answers
end
