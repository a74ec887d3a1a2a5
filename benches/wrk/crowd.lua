--[[
A crowd for wrk: what benches/http.rs sends, and the figures it reads back. The path is the URL's.

Arguments after `--`:
  same                the URL is fetched again and again
  returning <users>   a visit with each request, by so many users in turn: user-000000000, user-000000001, ...
  new <name>          a visit with each request, by a user who was never there: <name>-000000000, ...

Prints, as its last line: requests answered, seconds, p50 and p99 in microseconds, failed connections, reads and writes,
timeouts, and answers of a status of 400 or above.
--]]

-- Bodies of one length have one head, so that making a request is putting three strings together: wrk shares its cores
-- with what it measures.
local function visits_of(name)
   local function body(number)
      return string.format('{"user":"%s-%09d"}', name, number)
   end
   local headers = { Host = wrk.headers.Host, ["Content-Type"] = "application/json" }
   local sample = wrk.format("POST", nil, headers, body(0))
   local head = sample:sub(1, #sample - #body(0))
   return function(number)
      return head .. body(number)
   end
end

function init(args)
   local crowd = args[1]
   if crowd == "returning" then
      local requests, users, next = {}, tonumber(args[2]), 0
      local visit = visits_of("user")
      for number = 1, users do
         requests[number] = visit(number - 1)
      end
      function request()
         next = next % users + 1
         return requests[next]
      end
   elseif crowd == "new" then
      local visit, next = visits_of(args[2]), -1
      function request()
         next = next + 1
         return visit(next)
      end
   end
end

function done(summary, latency)
   local errors = summary.errors
   io.write(string.format("%d %.3f %.0f %.0f %d %d %d\n", summary.requests, summary.duration / 1e6,
      latency:percentile(50), latency:percentile(99), errors.connect + errors.read + errors.write, errors.timeout,
      errors.status))
end
