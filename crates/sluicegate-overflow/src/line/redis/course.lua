-- The course of the line, as in `course.rs`.
local HELD, TARGET, SLACK, EARLY = 2000000, 1000000, 350000, 500000
local PATIENCE, SOON, SECOND, UNKNOWN = 60000000, 2000000, 1000000, 30000000
local LONGEST_STEP = 60000000

local function clock()
  local given = tonumber(ARGV[2])
  if given > 0 then return given end
  local time = redis.call("TIME")
  return time[1] * 1000000 + time[2]
end

local function begin(at)
  -- Nothing of an older line is left, should only some of it have been evicted.
  redis.call("DEL", unpack(KEYS))
  line = {
    now = 1, clock = at, appointed = 1, mode = METERED, share = WHOLE, till = 0, parts = 0, last = -1, rate = rate_of(9),
    is_open = OPENS <= at and 1 or 0, opens_after = max(OPENS - at, 0), early = 0, gate = 0, gate_at = 1,
    first = 0, next = 0, swept = 0, waiting = 0, passed_over = 0, admitted = 0,
  }
  new_share(0)
  new_calendar()
end

local function keep()
  line.now = now
  redis.call("SET", LINE, cmsgpack.pack(line), "PX", KEPT)
  keep_places()
end

-- Moves the gate by the time that has gone by.
local function move_gate()
  local ahead = held_for()
  if line.is_open == 0 or line.mode ~= METERED or line.gate >= line.next or ahead >= HELD or is_full() then
    line.gate_at = now
    return
  end
  local speed = WHOLE
  if span(1, WHOLE) <= TARGET / 4 then
    speed = max(WHOLE + WHOLE / 8 - floor(ahead * (WHOLE / 8) / TARGET), 0)
  end
  local gone = floor((now - line.gate_at) * speed / WHOLE)
  local ranks = min(ranks_in(gone, line.share), line.next - line.gate)
  local used = floor(span(ranks, line.share) * WHOLE / speed)
  line.gate, line.gate_at = line.gate + ranks, min(line.gate_at + used, now)
  called(line.gate)
end

-- The clock shows this now. Returns how far the line's time has gone on.
local function pass_to(at)
  local step = min(max(at - line.clock, 0), max(line.appointed - line.now, 0) + LONGEST_STEP)
  line.clock, now = at, line.now + step
  return step
end

local function advance(at)
  local step = pass_to(at)
  if line.is_open == 0 then
    line.opens_after = max(OPENS - at, 0)
    line.is_open = line.opens_after == 0 and 1 or 0
    line.gate_at = max(now - min(max(at - OPENS, 0), step), 0)
  end
  forget_passes()
  move_gate()
  sweep(4)
end

local function is_due(rank)
  local ranks = max(rank - line.gate, 0)
  return ranks == 0 or span(ranks + 1, line.share) <= max(now - line.gate_at, 0) + SLACK
end

-- How many will come before a rank.
local function ahead_of(rank)
  return ceil(max(rank - line.gate, 0) * line.share / WHOLE)
end

-- The estimated wait of a rank until its turn, if visitors enter.
local function wait_of(rank)
  if line.mode == PAUSED then return nil end
  local wait, ahead = 0, ahead_of(rank)
  if line.mode == METERED then wait = max(next_turn() + span(ahead, WHOLE), room_after(ahead)) end
  return wait + (line.is_open == 0 and line.opens_after or 0)
end

-- The turn of a place, if it has one: how far away it is, and how long the pass lasts from then on.
local function turn(number, place)
  if place.is == TURNED then
    return max(place.at - now, 0), max(LASTS - max(now - place.at, 0), 0)
  end
  if line.mode == PAUSED then return nil end
  local after = 0
  if line.mode == METERED then
    local rank = rank_of(number, place.lot)
    if line.is_open == 0 or not is_due(rank) or is_full() or next_turn() > HELD then return nil end
    has_come(rank)
    if rank == line.gate then line.gate, line.gate_at = line.gate + 1, now end
    after = give_turn()
  end
  if place.is == WAITING then leave(place.client) end
  place.is, place.at, changed[number] = TURNED, now + after, true
  if MOST >= 0 then
    give_pass(number, now + after)
    line.appointed = max(line.appointed, now + after + LASTS)
  end
  line.admitted = line.admitted + 1
  return after, LASTS
end

-- The appointment about half way to the turn, if there is room for it.
local function half_way(turn_in)
  local half = ceil(floor(turn_in / 2) / SECOND) * SECOND
  local at = book(now + half, now + turn_in - floor(turn_in / 8))
  return at and max(at - now, 0)
end

-- Where a place stands that has no turn, and when to ask again; -1 for what is not known.
local function standing(number, place)
  local rank = rank_of(number, place.lot)
  local wait = wait_of(rank)
  local after
  if wait == nil then
    after = half_way(2 * UNKNOWN) or 2 * UNKNOWN
  else
    local turn_in = max(wait - EARLY, 0)
    -- Early rather than late: it is held then.
    after = turn_in > SOON and half_way(turn_in) or max(turn_in - turn_in % SECOND, SECOND)
  end
  line.appointed = max(line.appointed, now + after)
  place.at, changed[number] = now + max(after * 2, PATIENCE), true
  local is_drawn = line.is_open == 1 or number >= line.early
  return {
    "waiting", number, place.lot, is_drawn and ahead_of(rank) + 1 or -1, wait or -1,
    line.is_open == 0 and line.opens_after or -1, after,
  }
end

local words = {}

-- ARGV: number and lot of the place or "", lot of a new one, client or ""
function words.ask(number, lot, new_lot, client)
  number, lot = tonumber(number), tonumber(lot)
  -- A pass that was ended is not given again.
  local place = number and not has_ended(number, lot) and find(number, lot)
  if EACH < 0 then client = "" end
  if not place then
    if line.mode ~= OPEN then
      if line.waiting >= LONGEST then return { "full" } end
      if client ~= "" and of_client(client) >= EACH then return { "many" } end
    end
    number = add(tonumber(new_lot), client)
    place = held(number)
    if line.is_open == 0 then line.early = number + 1 end
  end
  local after, lasts = turn(number, place)
  if after then return { "turn", number, place.lot, after, lasts } end
  return standing(number, place)
end

words["end"] = function(number, lot)
  end_pass(tonumber(number), tonumber(lot))
  return {}
end

-- ARGV: the new rate
function words.rate()
  change_rate(rate_of(14))
  new_share(line.gate)
  new_calendar()
  return {}
end

function words.mode(mode)
  if line.mode == OPEN then
    -- All that are in line were free to enter, so that those that still wait are due.
    line.gate = line.next
    new_share(line.gate)
  end
  line.mode = tonumber(mode)
  return {}
end

-- What is known of the line by now: its numbers, and the ended passes from a time on, each with the time at which it is forgotten.
-- Nothing is written: those who left are passed over when others ask.
local function status(known)
  local wait = wait_of(rank_of(line.next, 4294967295))
  local numbers = {
    line.mode, line.rate.limit, line.rate.period, line.waiting, MOST >= 0 and active() or -1,
    line.admitted, line.passed_over, wait or -1, now,
  }
  for _, found in ipairs(redis.call("ZRANGEBYSCORE", ENDED, known, "+inf", "WITHSCORES", "LIMIT", 0, 10000)) do
    numbers[#numbers + 1] = found
  end
  return numbers
end

local at, packed = clock(), redis.call("GET", LINE)
if WORD == "status" then
  if not packed then return {} end
  line = cmsgpack.unpack(packed)
  pass_to(at)
  return status(ARGV[14])
end
if packed then
  line = cmsgpack.unpack(packed)
else
  begin(at)
end
advance(at)
local reply = words[WORD](unpack(ARGV, 14))
keep()
return reply
