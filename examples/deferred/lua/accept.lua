-- Takes a job into the stream, unless it is there already or the stream is full.
-- KEYS: stream, parked, once (the idempotency key's, or the job's), job, once by the other secret
-- ARGV: most, id, fingerprint or "", owner, name of once or "", sealed, fingerprint by the other secret
local id, print = ARGV[2], ARGV[3]
for name, same in pairs(print ~= "" and {[KEYS[3]] = print, [KEYS[5]] = ARGV[7]} or {}) do
  local before = redis.call("GET", name)
  if before == false then
    -- The first of its key.
  elseif string.sub(before, 33) == same then
    return {"repeated", string.sub(before, 1, 32)}
  else
    return {"other"}
  end
end
-- Parked jobs count: nothing is trimmed, so nothing may grow without bound.
if redis.call("XLEN", KEYS[1]) + redis.call("XLEN", KEYS[2]) >= tonumber(ARGV[1]) then
  return {"full"}
end
if print ~= "" then
  redis.call("SET", KEYS[3], id .. print)
end
redis.call("SET", KEYS[4], ARGV[4] .. "w")
redis.call("XADD", KEYS[1], "*", "id", id, "once", ARGV[5], "sealed", ARGV[6])
return {"accepted", id}
