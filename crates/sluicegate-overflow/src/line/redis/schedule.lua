-- The schedule of the line, as in `schedule.rs`: its time, its gate, turns, the standing of visitors, and the words of a call.
local SECOND, HELD, EARLY, SOON, PAUSE, PATIENCE = 1000000, 2000000, 500000, 2000000, 60000000, 60000000
local FASTEST, SLOWER_EACH, SKIPPED, BACK = 150, 20000, 16, 5000000
local LONGEST_STEP, LONGEST_PATIENCE = 120000000, 600000000
-- The time after which the expiries of all keys are set anew.
local RENEWED = 60000000
-- The number of places that one look at the numbers reads.
local LOOKED_FOR = 1024
-- The first number of visitors that enter without a place.
local WALK_INS = 4503599627370496

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
    now = 1, clock = at, appointed = 1, mode = METERED, till = 0, parts = 0, last = -1, rate = rate_of(9),
    is_open = OPENS <= at and 1 or 0, early = 0, gate = 0, gate_at = 1, patience = 1, asked_patience = 1, walked_in = 0,
    full_gate = 0, full_at = 0, given = 0, first = 0, next = 0, swept = 0, waiting = 0, passed_over = 0, admitted = 0,
    ended_until = 0, renewed = -RENEWED,
  }
end

local function keep()
  line.now = now
  keep_places()
  if now - line.renewed >= RENEWED then
    line.renewed = now
    redis.call("SET", LINE, packed(), "PX", KEPT)
    for at = 2, #KEYS do redis.call("PEXPIRE", KEYS[at], KEPT) end
  else
    redis.call("SET", LINE, packed(), "KEEPTTL")
  end
end

-- Skips ranks at which nobody waits. The number of a rank by lot is not known.
local function skip()
  for _ = 1, SKIPPED do
    if line.gate < line.early or not is_left(line.gate) then break end
    line.gate = line.gate + 1
    line.full_gate = max(line.full_gate, line.gate)
  end
end

-- Moves the gate by the time that has gone by.
local function move_gate()
  -- Also where passes are not bounded, because they may be some day.
  if MOST < 0 or is_full() then stand() end
  local moves = line.is_open == 1 and line.mode == METERED and not is_full()
  if moves then skip() end
  local last = min(line.next, calls_below())
  if not moves or line.gate >= last then
    line.gate_at = now
    return
  end
  local speed = FASTEST - floor(min(next_turn(), SECOND) / SLOWER_EACH)
  local ranks = min(ranks_in(floor(max(now - line.gate_at, 0) * speed / 100)), last - line.gate)
  local used = floor(span(ranks) * 100 / speed)
  line.gate, line.gate_at = line.gate + ranks, min(line.gate_at + used, now)
end

-- Whether a rank may take a turn: the gate has passed it, or is there and no pass is kept for those before it.
local function is_due(rank)
  return line.is_open == 1 and (rank < line.gate or rank == line.gate and rank < calls_below())
end

-- Moves the gate back to a due visitor that finds no turn.
local function call_again(rank)
  local gate = max(rank, line.gate - max(ranks_in(BACK), SKIPPED))
  if gate < line.gate then line.gate, line.gate_at = gate, now end
end

-- Takes over the time of the clock, at which the room may open.
local function pass_to(at)
  local step = min(max(at - line.clock, 0), max(line.appointed - line.now, 0) + LONGEST_STEP)
  line.clock, now = at, line.now + step
  line.patience = min(line.patience + step, line.asked_patience + LONGEST_PATIENCE)
  if line.is_open == 0 and OPENS <= at then line.is_open, line.gate_at = 1, now end
end

-- The time until the room opens.
local function opens_after()
  return line.is_open == 0 and max(OPENS - line.clock, 0) or 0
end

-- The most visitors that may enter before a rank. Some of the ranks before it may have entered while the room was open to all.
local function ahead_of(rank)
  return min(max(rank - line.gate, 0), line.waiting)
end

-- The longest wait of a rank until its turn, if visitors enter.
local function wait_of(rank)
  if line.mode == PAUSED then return nil end
  local wait, ahead = 0, ahead_of(rank)
  if line.mode == METERED then wait = max(next_turn() + span(ahead), pass_after(rank)) end
  return wait + opens_after()
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
    if not is_due(rank) then return nil end
    if is_full() or next_turn() > HELD then
      call_again(rank)
      return nil
    end
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

-- The time after which a visitor with this wait asks again: two thirds of it, or at its turn.
local function ask_after(wait)
  local turn_in = max(wait - EARLY, 0)
  local latest = max(turn_in - turn_in % SECOND, SECOND)
  if turn_in <= SOON then return latest end
  return min(ceil(floor(turn_in / 3) * 2 / SECOND) * SECOND, latest)
end

-- The standing of a place without a turn, and the time after which it asks again; -1 for unknown numbers.
local function standing(number, place)
  local rank = rank_of(number, place.lot)
  local wait = wait_of(rank)
  local after = wait and ask_after(wait) or PAUSE
  line.appointed = max(line.appointed, now + after)
  expect(number, place, line.patience + after + PATIENCE)
  local is_drawn = line.is_open == 1 or number >= line.early
  return {
    "waiting", number, place.lot, is_drawn and ahead_of(rank) + 1 or -1, wait or -1,
    line.is_open == 0 and opens_after() or -1, after,
  }
end

local words = {}

-- ARGV: number and lot of the place or "", lot of a new one, client or ""
function words.ask(number, lot, new_lot, client)
  line.asked_patience = line.patience
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
  change_rate(rate_of(14))
  return {}
end

function words.mode(mode)
  mode = tonumber(mode)
  if line.mode == OPEN and mode ~= OPEN then stand() end
  line.mode = mode
  return {}
end

-- The current numbers of the line, and the passes that ended from a time on, each with the time at which it is forgotten.
-- Nothing is written: visitors that left are passed over when others ask, and are only counted here.
local function status(known)
  move_gate()
  local left = left_by_now(LOOKED_FOR)
  local wait = wait_of(line.next)
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
pass_to(at)
forget_passes()
move_gate()
sweep(4)
local reply = words[WORD](unpack(ARGV, 14))
keep()
return reply
