-- What the scripts of workers have in common. KEYS: stream, parked, and the job's key, or its beginning.
local GROUP, WORKER = "workers", "worker"

-- The owner's digest of a job's record.
local function owner(job)
  return string.sub(redis.call("GET", job) or "", 1, 16)
end

local function remove(entry)
  redis.call("XACK", KEYS[1], GROUP, entry)
  redis.call("XDEL", KEYS[1], entry)
end

-- Sets a job aside, as it is. Fields: "id", id, "once", once, "sealed", sealed.
local function park(entry, fields, job)
  redis.call("XADD", KEYS[2], "*", unpack(fields))
  redis.call("SET", job, owner(job) .. "p")
  remove(entry)
end

-- How often an entry was delivered; 0 if it is in nobody's hands. The count is what tells one delivery from the next.
local function deliveries(entry)
  local pending = redis.pcall("XPENDING", KEYS[1], GROUP, entry, entry, 1)
  if pending.err and not string.find(pending.err, "NOGROUP", 1, true) then
    return pending
  end
  return pending[1] and pending[1][4] or 0
end
