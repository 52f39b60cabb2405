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

-- The time that this number of ranks takes at the rate, rounded up.
local function span(ranks)
  local us, more = scaled(ranks, line.rate.spacing * line.rate.unit, line.rate.ticks)
  return more and us + 1 or us
end

-- The ranks that fit into a time at the rate.
local function ranks_in(us)
  return (scaled(us, line.rate.ticks, line.rate.spacing * line.rate.unit))
end

-- The time until the next free turn.
local function next_turn()
  return max(line.till - now, 0)
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
  if line.last >= 0 and line.last + span(1) > now then spend(0, line.last) end
end
