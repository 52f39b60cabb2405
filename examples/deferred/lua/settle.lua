-- What becomes of a job in hand, if it still is in these hands.
-- KEYS: stream, parked, job, once (or job)   ARGV: entry, its delivery, word, then
--   "hold"   nothing            the lease begins anew
--   "again"  ms                 it is handed out again when it has not been held for as long as this
--   "park"   nothing            it is set aside
--   "done"   ms, sealed result  it is over, and its record stays for this time
local entry, word = ARGV[1], ARGV[3]
local count = deliveries(entry)
if type(count) == "table" then
  return count
elseif count ~= tonumber(ARGV[2]) then
  return "lost"
end
if word == "hold" then
  redis.call("XCLAIM", KEYS[1], GROUP, WORKER, 0, entry, "IDLE", 0, "JUSTID")
elseif word == "again" then
  redis.call("XCLAIM", KEYS[1], GROUP, WORKER, 0, entry, "IDLE", ARGV[4], "JUSTID")
elseif word == "park" then
  park(entry, redis.call("XRANGE", KEYS[1], entry, entry)[1][2], KEYS[3])
else
  redis.call("SET", KEYS[3], owner(KEYS[3]) .. "d" .. ARGV[5], "PX", ARGV[4])
  if KEYS[4] ~= KEYS[3] then
    redis.call("PEXPIRE", KEYS[4], ARGV[4])
  end
  remove(entry)
end
return "ours"
