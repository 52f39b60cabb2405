-- The gate of the line, as in `schedule/gate.rs`, and its movements.
local HELD, TARGET, SLACK, SKIPPED = 2000000, 1000000, 350000, 16
local LONGEST_STEP, LONGEST_PATIENCE = 60000000, 600000000
local SILENT, SILENT_TURNS, BACK = 2000000, 3, 10000000
local LEAST_BACK, MOST_BACK = 1000000, 5000000

-- The time after which the expiries of all keys are set anew.
local RENEWED = 60000000

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
    patience = 1, asked_patience = 1, asked = 1, asked_gate = 0, asked_share = WHOLE, share_before = WHOLE, silent_from = 0, silent_to = 0, silent_until = 0,
    again_to = 0, back_to = 0, raised = -1, raised_until = 0, raised_share = WHOLE, opened_to = 0, walked_in = 0, full_gate = 0, full_at = 0, given = 0,
    first = 0, next = 0, swept = 0, waiting = 0, passed_over = 0, admitted = 0, ended_until = 0, renewed = -RENEWED,
  }
  new_share(0)
  new_calendar()
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

-- Skips ranks that are called again and at which no visitor waits.
local function skip()
  local from = line.gate
  for _ = 1, SKIPPED do
    -- The number of a rank by lot is not known.
    if line.gate >= max(line.again_to, line.back_to) or line.gate < line.early then break end
    if not is_left(line.gate) then break end
    line.gate = line.gate + 1
  end
  if line.gate > from then
    line.full_gate = max(line.full_gate, line.gate)
    if from < line.again_to then new_share(line.gate) end
  end
end

-- Moves the gate back to a rank, if it is beyond, and on from there with this share.
local function call_again(rank, share)
  if rank >= line.gate then return end
  line.again_to = max(line.again_to, line.gate)
  line.gate, line.gate_at, line.share = rank, now, share
  new_share(rank)
end

-- Handles a due visitor that finds all near turns given: the gate goes back to it if it was called long before those that have them.
local function turned_away(rank)
  local back = line.gate - rank
  if back > ranks_in(LEAST_BACK, line.share) and back <= ranks_in(MOST_BACK, line.share) then
    line.back_to = max(line.back_to, line.gate)
    line.gate, line.gate_at = rank, now
  end
end

-- Ranks that were called while no visitor asked, as in `silence.rs`.
local function break_silence()
  if now - line.asked > max(span(SILENT_TURNS, WHOLE), SILENT) and line.gate > line.asked_gate then
    line.silent_from = now < line.silent_until and min(line.silent_from, line.asked_gate) or line.asked_gate
    line.share_before = line.asked_share
    line.silent_to, line.silent_until = line.gate, now + BACK
  end
  line.asked_patience = line.patience
end

-- Moves the gate by the time that has gone by.
local function move_gate()
  -- Also where passes are not bounded, because they may be some day.
  if MOST < 0 or is_full() then stands() end
  if line.is_open == 1 and line.mode == METERED then skip() end
  local ahead, last = held_for(), min(line.next, calls_below())
  if line.is_open == 0 or line.mode ~= METERED or line.gate >= last or ahead >= HELD or is_full() then
    line.gate_at = now
    return
  end
  local speed = WHOLE
  if span(1, WHOLE) <= TARGET / 4 then
    speed = max(WHOLE + WHOLE / 8 - floor(ahead * (WHOLE / 8) / TARGET), 0)
  end
  local gone = floor((now - line.gate_at) * speed / WHOLE)
  local ranks = min(ranks_in(gone, line.share), last - line.gate)
  local used = floor(span(ranks, line.share) * WHOLE / speed)
  line.gate, line.gate_at = line.gate + ranks, min(line.gate_at + used, now)
  -- Visitors that are called again come at their old appointments, so their absence says nothing.
  if line.gate >= line.again_to then called(line.gate) end
end

-- Takes over the time of the clock. Returns how far the line's time has gone on.
local function pass_to(at)
  local step = min(max(at - line.clock, 0), max(line.appointed - line.now, 0) + LONGEST_STEP)
  line.clock, now = at, line.now + step
  line.patience = min(line.patience + step, line.asked_patience + LONGEST_PATIENCE)
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
  if rank >= line.gate and rank >= calls_below() then return false end
  local ranks = max(rank - line.gate, 0)
  return ranks == 0 or span(ranks + 1, line.share) <= max(now - line.gate_at, 0) + SLACK
end

