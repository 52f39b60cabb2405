-- The line of a waiting room: the rules and the base of `schedule`, for one call of a line that several instances share.
-- KEYS: line, places, clients, calendar, ends, out, ended
-- ARGV: word, clock in us or 0 for the server's, opens at in us, most active or -1, us that a pass lasts, longest line, places per client or
--       -1, ms for which keys are kept, then the rate of a new line (see `rate_of`), and behind it the word's own
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local NEVER, WHOLE = 9007199254740991, 1024
local METERED, PAUSED, OPEN = 0, 1, 2
local LINE, PLACES, CLIENTS, CALENDAR, ENDS, OUT, ENDED = unpack(KEYS)
local WORD, KEPT = ARGV[1], ARGV[8]
local OPENS, MOST, LASTS, LONGEST, EACH =
  tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
-- Everything of the line but its places, and the line's time.
local line, now

-- a * b / c rounded down, and whether something was left; bit by bit where the product is not below 2^53.
local function scaled(a, b, c)
  local whole, rest, units, left = floor(a / c) * b, a % c, 0, 0
  if rest * b <= NEVER then
    units = floor(rest * b / c)
    return whole + units, rest * b > units * c
  end
  local bit = 1
  while bit * 2 <= b do bit = bit * 2 end
  while bit >= 1 do
    units, left = units * 2, left * 2
    if left >= c then units, left = units + 1, left - c end
    if b >= bit then
      b, left = b - bit, left + rest
      if left >= c then units, left = units + 1, left - c end
    end
    bit = bit / 2
  end
  return whole + units, left > 0
end

-- us, parts in one unit of time, parts between two turns; and limit and nanoseconds of the period, to be shown.
local function rate_of(at)
  return { unit = tonumber(ARGV[at]), ticks = tonumber(ARGV[at + 1]), spacing = tonumber(ARGV[at + 2]), limit = tonumber(ARGV[at + 3]), period = tonumber(ARGV[at + 4]) }
end

-- The time that this number of ranks takes if this share of them comes, rounded up.
local function span(ranks, share)
  local rate = line.rate
  local us, more = scaled(ranks * share, rate.spacing * rate.unit, rate.ticks * WHOLE)
  return more and us + 1 or us
end

-- The ranks that fit into a time, if this share of them comes.
local function ranks_in(us, share)
  local rate = line.rate
  return (scaled(us, rate.ticks * WHOLE, rate.spacing * rate.unit * max(share, 1)))
end

-- The time until the next free turn.
local function next_turn()
  return max(line.till - now, 0)
end

-- The time until the last turn that was given.
local function held_for()
  return max(next_turn() - span(1, WHOLE), 0)
end

-- One turn at this time, on top of a level of parts.
local function spend(level, at)
  local rate = line.rate
  level = level + rate.spacing
  local units = ceil(level / rate.ticks)
  line.till, line.parts = at - at % rate.unit + units * rate.unit, units * rate.ticks - level
end

-- Gives the next free turn. Returns the time until it.
local function give_turn()
  local rate, after = line.rate, next_turn()
  local start = now + after - (now + after) % rate.unit
  local level = 0
  if line.till > start then
    level = max(floor((line.till - start) / rate.unit) * rate.ticks - line.parts, 0)
  end
  spend(level, now + after)
  line.last = now + after
  return after
end

-- Sets another rate, counted from the last turn, so that a change by itself costs no turn.
local function change_rate(rate)
  line.rate, line.till, line.parts = rate, 0, 0
  if line.last >= 0 and line.last + span(1, WHOLE) > now then spend(0, line.last) end
end
