--[[
  Brings stock: units that this pool retired, then new ones.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  number of the operation
  ARGV[4]  its chunk
  ARGV[5]  how many retired units come back, with their turn (docs/FAULTS.md F3)
  ARGV[6]  1: all of them cool first
  ARGV[7]  the new units, and so on

  Reply    1: taken in; 0: this chunk was, or a later one, or the pool is closing. Safe to repeat.
]]
local early = enter(tonumber(ARGV[5]) + #ARGV - 6)
if early then
  return early
end
local operation, chunk = tonumber(ARGV[3]), tonumber(ARGV[4])
local is_new = operation > state.operation or (operation == state.operation and chunk > state.chunk)
if not is_new or is_over() then
  return answer('ok', 0)
end
local units = take(RETIRED, math.min(tonumber(ARGV[5]), state.retired))
state.retired = state.retired - #units
for place = 7, #ARGV do
  units[#units + 1] = ARGV[place]
end
if ARGV[6] == '1' then
  cool(units)
else
  append(POOL, units)
  state.avail = state.avail + #units
end
state.op_total = (operation == state.operation and state.op_total or 0) + #units
state.operation, state.chunk, state.op_chunk = operation, chunk, #units
changed(true)
return answer('ok', 1)
