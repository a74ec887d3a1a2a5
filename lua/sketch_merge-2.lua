--[[
  Raises a sketch's registers to at least those of another one.

  KEYS[1]  sketch; created where absent
  KEYS[2]  a temporary key in the same slot that nobody else uses
  ARGV[1]  bytes of the other sketch
  ARGV[2]  when the sketch goes, in seconds since 1970; empty: never

  Reply    1
  Errors   WRONGTYPE, INVALIDOBJ: one of the two is malformed, and KEYS[1] is as it was. OOM

  The temporary key is gone when the script ends, whatever happens. Never "read, merge, write back": a PFADD in
  between would be lost. Safe to repeat.
]]
local merge = redis.pcall('SET', KEYS[2], ARGV[1])
if not merge.err then
  merge = redis.pcall('PFMERGE', KEYS[1], KEYS[2])
end
redis.pcall('UNLINK', KEYS[2])
if merge.err then
  return merge
end
-- PFMERGE creates keys without an expiry. NX for a new key (a time that is over removes it at once), GT for a retention
-- that was raised; never a plain EXPIREAT: a process that keeps days for less long would take them from the others.
if ARGV[2] ~= '' then
  redis.call('EXPIREAT', KEYS[1], ARGV[2], 'NX')
  redis.call('EXPIREAT', KEYS[1], ARGV[2], 'GT')
end
return 1
