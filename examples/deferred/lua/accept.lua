-- Takes a job into the stream, unless it is there already or the stream is full.
-- KEYS: stream, parked, once (the idempotency key's, or the job's), job   ARGV: most, id, fingerprint or "", owner, name of once or "", sealed
local id, print = ARGV[2], ARGV[3]
if print ~= "" then
  local before = redis.call("GET", KEYS[3])
  if before == false then
    -- The first of its key.
  elseif string.sub(before, 33) == print then
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
