-- Hands out one job: one that its worker has let go of, or the next one of the stream.
-- KEYS: stream, parked, beginning of jobs' keys   ARGV: lease in ms, most deliveries, cursor
local lease, most, cursor = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local old = redis.pcall("XAUTOCLAIM", KEYS[1], GROUP, WORKER, lease, cursor, "COUNT", 1)
if old.err and string.find(old.err, "NOGROUP", 1, true) then
  redis.call("XGROUP", "CREATE", KEYS[1], GROUP, "0", "MKSTREAM")
  old = {"0-0", {}}
elseif old.err then
  return old
end
cursor = old[1]
local entry = old[2][1]
if entry then
  local count = deliveries(entry[1])
  if type(count) == "table" then
    return count
  elseif count <= most then
    return {cursor, entry[1], count, entry[2][2], entry[2][4], entry[2][6]}
  end
  -- It was handed out often enough, and no worker lived to say how it went.
  park(entry[1], entry[2], KEYS[3] .. entry[2][2])
end
local new = redis.call("XREADGROUP", "GROUP", GROUP, WORKER, "COUNT", 1, "STREAMS", KEYS[1], ">")
if not new then
  return {cursor}
end
entry = new[1][2][1]
return {cursor, entry[1], 1, entry[2][2], entry[2][4], entry[2][6]}
