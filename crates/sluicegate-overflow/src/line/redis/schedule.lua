-- The schedule of the line, as in `schedule`: turns, the standing of visitors, and the words of a call.
local EARLY, PATIENCE, SOON, SECOND, UNKNOWN = 500000, 60000000, 2000000, 1000000, 30000000
-- The number of places that one look at the numbers reads.
local LOOKED_FOR = 1024
-- The first number of visitors that enter without a place.
local WALK_INS = 4503599627370496

-- The number of visitors that will come before a rank.
local function ahead_of(rank)
  local ranks = max(rank - line.gate, 0)
  -- Some of those that came before have entered as well.
  if line.gate < line.opened_to then ranks = min(ranks, line.waiting) end
  return ceil(ranks * line.share / WHOLE)
end

-- The estimated wait of a rank until its turn, if visitors enter.
local function wait_of(rank)
  if line.mode == PAUSED then return nil end
  local wait, ahead = 0, ahead_of(rank)
  if line.mode == METERED then wait = max(next_turn() + span(ahead, WHOLE), room_after(ahead), calls_after(rank)) end
  return wait + (line.is_open == 0 and line.opens_after or 0)
end

-- Counts a turn, and its pass unless all passes are out. Returns the time until it, and the length of the pass from then on.
local function admit(number, after)
  if MOST >= 0 and not is_full() then
    give_pass(number, now + after)
    line.appointed = max(line.appointed, now + after + LASTS)
  end
  line.admitted = line.admitted + 1
  return after, LASTS
end

-- The turn of a place, if it has one: the time until it, and the length of the pass from then on.
local function turn(number, place)
  if place.is == TURNED then
    return max(place.at - now, 0), max(LASTS - max(now - place.at, 0), 0)
  end
  if line.mode == PAUSED then return nil end
  local after = 0
  if line.mode == METERED then
    local rank = rank_of(number, place.lot)
    if now < line.silent_until and rank >= line.silent_from and rank < line.silent_to then
      call_again(rank, line.share_before)
    end
    if line.is_open == 0 or not is_due(rank) or is_full() then return nil end
    if next_turn() > HELD then
      turned_away(rank)
      return nil
    end
    has_come(rank)
    if rank == line.gate then line.gate, line.gate_at = line.gate + 1, now end
    after = give_turn()
  end
  if place.is == WAITING then leave(place.client) end
  place.is, place.at, changed[number] = TURNED, now + after, true
  return admit(number, after)
end

-- The turn of a visitor without a place while the room is open to all: no place is kept for it.
local function walk_in(lot)
  local number = WALK_INS + line.walked_in
  line.walked_in = line.walked_in + 1
  return { "turn", number, lot, admit(number, 0) }
end

-- The appointment about half way to the turn, if there is room for it.
local function half_way(turn_in)
  local half = ceil(floor(turn_in / 2) / SECOND) * SECOND
  local at = book(now + half, now + turn_in - floor(turn_in / 8))
  return at and max(at - now, 0)
end

-- The standing of a place without a turn, and the time at which it asks again; -1 for unknown numbers.
local function standing(number, place)
  local rank = rank_of(number, place.lot)
  local wait = wait_of(rank)
  local after
  if wait == nil then
    after = half_way(2 * UNKNOWN) or 2 * UNKNOWN
  else
    local turn_in = max(wait - EARLY, 0)
    -- The visitor comes early rather than late: it is held then.
    after = turn_in > SOON and half_way(turn_in) or max(turn_in - turn_in % SECOND, SECOND)
  end
  line.appointed = max(line.appointed, now + after)
  expect(number, place, line.patience + max(after * 2, PATIENCE))
  local is_drawn = line.is_open == 1 or number >= line.early
  return {
    "waiting", number, place.lot, is_drawn and ahead_of(rank) + 1 or -1, wait or -1,
    line.is_open == 0 and line.opens_after or -1, after,
  }
end

local words = {}

-- ARGV: number and lot of the place or "", lot of a new one, client or ""
function words.ask(number, lot, new_lot, client)
  break_silence()
  number, lot = tonumber(number), tonumber(lot)
  -- A pass that was ended is not given again.
  local place = number and not has_ended(number, lot) and find(number, lot)
  if EACH < 0 then client = "" end
  if not place then
    if line.mode == OPEN then return walk_in(tonumber(new_lot)) end
    if line.waiting >= LONGEST then return { "full" } end
    if client ~= "" and of_client(client) >= EACH then return { "many" } end
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
  local before = span(WHOLE, WHOLE)
  change_rate(rate_of(14))
  if now >= line.raised_until then line.raised = -1 end
  local after = span(WHOLE, WHOLE)
  if after < before then
    -- Visitors that sleep longer than their wait at this rate are called, and come later.
    if line.raised < 0 then line.raised, line.raised_until, line.raised_share = line.gate, 0, line.share end
    line.raised_until = max(line.raised_until, line.appointed)
  elseif floor(after / 2) >= before and line.raised >= 0 then
    -- More of them are due than this rate lets in.
    call_again(line.raised, line.raised_share)
  end
  new_share(line.gate)
  new_calendar()
  return {}
end

function words.mode(mode)
  mode = tonumber(mode)
  if mode == line.mode then return {} end
  if line.mode == OPEN then
    -- Visitors that slept meanwhile keep their places.
    line.opened_to, line.again_to = line.next, line.next
    stands()
  end
  line.mode = mode
  return {}
end

-- The current numbers of the line, and the passes that ended from a time on, each with the time at which it is forgotten.
-- Nothing is written: visitors that left are passed over when others ask, and are only counted here.
local function status(known)
  move_gate()
  local left = left_by_now(LOOKED_FOR)
  local wait = wait_of(rank_of(line.next, 4294967295))
  local numbers = {
    line.mode, line.rate.limit, line.rate.period, max(line.waiting - left, 0), MOST >= 0 and active() or -1,
    line.admitted, line.passed_over + left, wait or -1, now,
  }
  for _, found in ipairs(redis.call("ZRANGEBYSCORE", ENDED, known, "+inf", "WITHSCORES", "LIMIT", 0, 10000)) do
    numbers[#numbers + 1] = found
  end
  return numbers
end

local at, kept = clock(), redis.call("GET", LINE)
if WORD == "status" then
  if not kept then return {} end
  read(kept)
  pass_to(at)
  return status(ARGV[14])
end
if kept then
  read(kept)
else
  begin(at)
end
advance(at)
local reply = words[WORD](unpack(ARGV, 14))
if WORD == "ask" then line.asked, line.asked_gate, line.asked_share = now, line.gate, line.share end
keep()
return reply
