--[[
  Counts the union of sketches that lie in different slots, which PFMERGE alone cannot reach (CROSSSLOT).

  The caller reads the sketches where they are and hands their bytes to one server, under keys of one tag that nobody
  else uses. They live for the length of this script only.

  KEYS[i]  a temporary key for sketch i
  ARGV[i]  the bytes of sketch i

  Reply    users in the union
  Errors   WRONGTYPE, INVALIDOBJ: one of the sketches is malformed. OOM

  Nothing is left behind, whatever happens: every write is caught, and UNLINK needs no memory.
]]
local function merged()
  for i, key in ipairs(KEYS) do
    local set = redis.pcall('SET', key, ARGV[i])
    if set.err then
      return set
    end
  end
  -- Into the first one. Also with a single sketch: it drops the count that the bytes carry, which may be anybody's.
  local merge = redis.pcall('PFMERGE', unpack(KEYS))
  if merge.err then
    return merge
  end
  return redis.pcall('PFCOUNT', KEYS[1])
end

local reply = merged()
redis.pcall('UNLINK', unpack(KEYS))
return reply
