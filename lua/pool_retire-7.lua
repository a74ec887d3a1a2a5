--[[
  Takes units that nobody holds out of the pool, 256 at most.

  KEYS     the pool's seven (pool_prelude.lua)
  ARGV[3]  number of the operation
  ARGV[4]  its chunk
  ARGV[5]  how many are wanted

  Reply    how many this chunk took, now or before. Safe to repeat.
]]
local early = enter(0)
if early then
  return early
end
local operation, chunk = tonumber(ARGV[3]), tonumber(ARGV[4])
if operation < state.operation or (operation == state.operation and chunk <= state.chunk) then
  local same = operation == state.operation and chunk == state.chunk
  return answer('ok', same and state.op_chunk or 0)
end
mature()
local units = take(POOL, math.min(tonumber(ARGV[5]), state.avail, MOST))
append(RETIRED, units)
state.avail, state.retired = state.avail - #units, state.retired + #units
state.op_total = (operation == state.operation and state.op_total or 0) + #units
state.operation, state.chunk, state.op_chunk = operation, chunk, #units
changed(true)
return answer('ok', #units)
