-- The permits that instances share: each key is a hash, with a field for each instance that holds permits or waits for them.
--
-- KEYS: the keys that the instance reports. ARGV: the time in microseconds, or empty for the server's; the instance; its lease in
-- microseconds; the number of its call; the permits of each key; and for each key the permits that the instance has in use,
-- the permits that it wants, its other waiting requests, and how long its first request has waited.
-- Reply: for each key the permits that the instance holds from now on, the permits left, the permits that it owes to
-- others, and the number of instances that hold permits.
--
-- A field: the permits that the instance holds, its waiting requests, since when they wait, the end and length of its lease, and the
-- number of the call that wrote it.
local TURN = 250000 -- a request of another instance that has waited longer by this goes first
local WAITS = 500000 -- requests of an instance that has not asked for this long no longer wait
local SLACK = 60000 -- milliseconds; the store's clock may differ from the clock that expires keys

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local me, lease, call, number = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local function read(field)
  local parts = {}
  for digits in string.gmatch(field, '%d+') do parts[#parts + 1] = tonumber(digits) end
  if #parts == 6 then return unpack(parts) end
end

local function write(key, instance, held, waiting, since, till, lasts, by)
  redis.call('HSET', key, instance, string.format('%.0f %.0f %.0f %.0f %.0f %.0f', held, waiting, since, till, lasts, by))
end

local reply = {}
for i, key in ipairs(KEYS) do
  local at = 5 + (i - 1) * 4
  local in_use, wanted = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local waiting, since = tonumber(ARGV[at + 3]), now - tonumber(ARGV[at + 4])
  local fields = redis.pcall('HGETALL', key)
  if fields.err then
    if not string.find(fields.err, 'WRONGTYPE', 1, true) then return fields end
    redis.call('DEL', key) -- a foreign value
    fields = {}
  end
  local free, ahead, holders, longest, is_late, mine, own = number, 0, 0, lease, false, nil, 0
  for j = 1, #fields, 2 do
    local instance = fields[j]
    local held, waits, first, till, lasts, by = read(fields[j + 1])
    if instance == me then
      -- A call that arrives after a later one changes nothing.
      is_late, mine = held and by >= call, held or 0
      if held and till > now then own = held end
    elseif not held or till <= now then
      redis.call('HDEL', key, instance)
    else
      if till > now + lasts then -- the clock went back
        till = now + lasts
        write(key, instance, held, waits, first, till, lasts, by)
      end
      free = free - held
      if held > 0 then holders = holders + 1 end
      longest = math.max(longest, till - now)
      if till - lasts + WAITS > now and first + TURN < since then ahead = ahead + waits end
    end
  end
  local granted
  if is_late then
    granted = mine
  else
    -- Permits in use by this instance stay in use if the limit is lowered.
    granted = math.max(0, math.min(in_use, math.max(free, own)), math.min(wanted, free - ahead))
    waiting = math.min(waiting, wanted - granted)
    if granted > 0 or waiting > 0 then
      write(key, me, granted, waiting, since, now + lease, lease, call)
      redis.call('PEXPIRE', key, string.format('%.0f', math.ceil(longest / 1000) + SLACK))
    elseif mine then
      redis.call('HDEL', key, me)
    end
  end
  local left = math.max(0, free - granted)
  reply[#reply + 1] = granted
  reply[#reply + 1] = left
  reply[#reply + 1] = math.max(0, ahead - left)
  reply[#reply + 1] = granted > 0 and holders + 1 or holders
end
return reply
