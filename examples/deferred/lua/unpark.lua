-- Puts parked jobs back at the end of the stream, as if they were new.
-- KEYS: stream, parked, beginning of jobs' keys   ARGV: how many at most
local parked = redis.call("XRANGE", KEYS[2], "-", "+", "COUNT", ARGV[1])
for _, entry in ipairs(parked) do
  redis.call("XADD", KEYS[1], "*", unpack(entry[2]))
  redis.call("SET", KEYS[3] .. entry[2][2], owner(KEYS[3] .. entry[2][2]) .. "w")
  redis.call("XDEL", KEYS[2], entry[1])
end
return #parked
