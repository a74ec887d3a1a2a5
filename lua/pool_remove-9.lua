--[[
  Forgets a pool.

  KEYS[1]  to KEYS[7]: the pool's seven (pool_prelude.lua)
  KEYS[8]  its published claimants
  KEYS[9]  the lease of who builds them
  ARGV     none

  Reply    OK. Large keys are freed off the server's main thread. Writes a lease that is over in a second, so that a WAIT
           has something to wait for where nothing was left to remove (docs/FAULTS.md A1). Safe to repeat.
]]
redis.call('UNLINK', unpack(KEYS))
redis.call('SET', KEYS[9], 'removed', 'PX', 1000)
return 'OK'
