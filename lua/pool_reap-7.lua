--[[
  Expires holds that are overdue, the longest overdue first.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  how many at most

  Reply    how many. Safe to repeat.
]]
local limit = tonumber(ARGV[3])
local early = enter(limit)
if early then
  return early
end
local users = redis.call('ZRANGEBYSCORE', DEADLINES, '-inf', text(now_ms), 'LIMIT', 0, limit)
if #users > 0 then
  local records = redis.call('HMGET', CLAIMS, unpack(users))
  for place, user in ipairs(users) do
    if records[place] then
      finish_claim(user, parse(records[place]), 'e', 'expire')
    end
  end
end
return answer('ok', #users)
