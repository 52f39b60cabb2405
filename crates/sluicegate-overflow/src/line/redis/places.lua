-- Places, as in `places.rs`, and passes, as in `passes.rs`.
local AGAIN, KEPT_PLACE, CALLS, DOUBLED, EXPIRED = 60000000, 600000000, 60000000, 20, 64
-- The time for which a turn is given again: no longer than its pass is good.
local GIVEN_AGAIN = min(LASTS, AGAIN)
local WAITING, PASSED_OVER, TURNED = 0, 1, 2
-- The places that this call has read, those that it has changed, and whether it has added one.
local seen, changed, added = {}, {}, false

local function rank_of(number, lot)
  if number >= line.early then return number end
  return floor(lot * line.early / 4294967296)
end

-- The place of a number, if it is kept.
local function held(number)
  if number < line.first or number >= line.next then return nil end
  if not seen[number] then
    local packed = redis.call("HGET", PLACES, number)
    if not packed then return nil end
    local lot, is, at, client = struct.unpack("<I4Bds", packed)
    seen[number] = { lot = lot, is = is, at = at, client = client }
  end
  return seen[number]
end

local function keep_places()
  for number in pairs(changed) do
    local place = seen[number]
    local packed = struct.pack("<I4Bds", place.lot, place.is, place.at, place.client)
    redis.call("HSET", PLACES, number, packed)
  end
  if added then redis.call("PEXPIRE", PLACES, KEPT) end
end

-- The time since its turn, or the time for which its visitor is missed.
local function age_of(place)
  return max((place.is == TURNED and now or line.patience) - place.at, 0)
end

-- The time after that for which it is kept.
local function kept_for(place)
  return place.is == TURNED and GIVEN_AGAIN or KEPT_PLACE
end

-- The state of the place, unless it is forgotten.
local function find(number, lot)
  local place = held(number)
  if not place or place.lot ~= lot then return nil end
  local counts = rank_of(number, lot) < line.gate or place.is == TURNED
  if age_of(place) >= kept_for(place) and counts then return nil end
  return place
end

-- Whether no visitor waits at a number any more: it had its turn, or is missed.
local function is_left(number)
  if number >= line.next then return false end
  local place = held(number)
  return not place or place.is ~= WAITING or age_of(place) > 0
end

local function of_client(client)
  return tonumber(redis.call("HGET", CLIENTS, client)) or 0
end

local function join(client)
  line.waiting = line.waiting + 1
  if client ~= "" then
    redis.call("HINCRBY", CLIENTS, client, 1)
    redis.call("PEXPIRE", CLIENTS, KEPT)
  end
end

local function add(lot, client)
  local number = line.next
  line.next = number + 1
  seen[number] = { lot = lot, is = WAITING, at = NEVER, client = client }
  changed[number], added = true, true
  join(client)
  return number
end

-- Notes that the visitor has asked and waits, and is missed from this moment on.
local function expect(number, place, missed)
  place.at, changed[number] = missed, true
  if place.is == PASSED_OVER then
    place.is = WAITING
    join(place.client)
    line.swept = min(line.swept, number)
  end
end

local function leave(client)
  line.waiting = max(line.waiting - 1, 0)
  if client ~= "" and redis.call("HINCRBY", CLIENTS, client, -1) <= 0 then
    redis.call("HDEL", CLIENTS, client)
  end
end

-- Passes over visitors that did not come, and forgets those that did not come back.
local function sweep(steps)
  for _ = 1, steps do
    if line.swept >= line.next then break end
    local place = held(line.swept)
    if place and place.is == WAITING then
      if age_of(place) == 0 or (line.mode ~= OPEN and rank_of(line.swept, place.lot) >= line.gate) then break end
      place.is, changed[line.swept] = PASSED_OVER, true
      leave(place.client)
      line.passed_over = line.passed_over + 1
    end
    line.swept = line.swept + 1
  end
  for _ = 1, steps do
    if line.first >= line.swept then break end
    local place = held(line.first)
    if place and age_of(place) <= kept_for(place) then break end
    redis.call("HDEL", PLACES, line.first)
    seen[line.first], changed[line.first] = nil, nil
    line.first = line.first + 1
  end
end

-- The number of waiting visitors that have left by now, among the next ones to be passed over. Nothing is written.
local function left_by_now(most)
  local count = 0
  for number = line.swept, min(line.swept + most, line.next) - 1 do
    local place = held(number)
    if place and place.is == WAITING then
      if age_of(place) == 0 or (line.mode ~= OPEN and rank_of(number, place.lot) >= line.gate) then break end
      count = count + 1
    end
  end
  return count
end

local function active()
  return redis.call("SCARD", OUT)
end

local function is_full()
  return MOST >= 0 and active() >= MOST
end

-- Notes that the gate stands here, and that calls are counted from now on.
local function stand()
  line.full_gate, line.full_at, line.given = line.gate, now, 0
end

local function free_passes()
  return MOST < 0 and 0 or max(MOST - active(), 0)
end

-- Ranks below it may be called: one for each free pass, and twice as many after each minute.
local function calls_below()
  if MOST < 0 then return NEVER end
  local doubled = min(floor(max(now - line.full_at, 0) / CALLS), DOUBLED)
  return line.full_gate + line.given + free_passes() * 2 ^ doubled
end

local function give_pass(number, at)
  line.given = line.given + 1
  redis.call("ZADD", ENDS, at + LASTS, number)
  redis.call("SADD", OUT, number)
  redis.call("PEXPIRE", ENDS, KEPT)
  redis.call("PEXPIRE", OUT, KEPT)
end

local function end_pass(number, lot)
  redis.call("SREM", OUT, number)
  -- It must not be forgotten before its place, which would give the pass again.
  local ends = now + max(LASTS, AGAIN)
  redis.call("ZADD", ENDED, "NX", ends, string.format("%.0f:%.0f", number, lot))
  redis.call("PEXPIRE", ENDED, KEPT)
  line.ended_until = max(line.ended_until, ends)
end

local function has_ended(number, lot)
  return line.ended_until > now and redis.call("ZSCORE", ENDED, string.format("%.0f:%.0f", number, lot)) and true
end

local function forget_passes()
  if line.ended_until > 0 then redis.call("ZREMRANGEBYSCORE", ENDED, "-inf", now) end
  if line.ended_until <= now then line.ended_until = 0 end
  if MOST < 0 then return end
  local over = redis.call("ZRANGEBYSCORE", ENDS, "-inf", now, "LIMIT", 0, EXPIRED)
  if #over > 0 then
    redis.call("SREM", OUT, unpack(over))
    redis.call("ZREM", ENDS, unpack(over))
  end
end

-- The time until there is room for one more behind others.
local function room_after(ahead)
  local behind = ahead + active() - MOST
  if behind < 0 then return 0 end
  local rounds, which = floor(behind / max(MOST, 1)), behind % max(MOST, 1)
  local found = redis.call("ZRANGE", ENDS, which, which, "WITHSCORES")
  local ends = tonumber(found[2]) or now + LASTS
  return max(ends - now, 0) + rounds * LASTS
end

-- The time until there is a pass for this rank, if none ends early: the end of passes for all called and waiting visitors before it, or the
-- minute in which as many are called for the free ones.
local function pass_after(rank)
  if MOST < 0 then return 0 end
  local ahead, free, doubled = max(rank - line.full_gate - line.given, 0), free_passes(), 0
  local room = room_after(ahead)
  if free == 0 then return room end
  while doubled < DOUBLED and free * 2 ^ doubled <= ahead do doubled = doubled + 1 end
  return min(room, max(line.full_at + doubled * CALLS - now, 0))
end
