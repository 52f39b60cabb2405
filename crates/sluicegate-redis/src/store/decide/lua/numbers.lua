local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local EXACT = 4503599627370496
local REST = { till = 0, a = 0, b = 0 }

-- Exact below 2^53: a quotient that is not whole differs from every whole number by more than its rounding. Adding b - 1
-- first would not be.
local function ceil_div(a, b)
  return ceil(a / b)
end

-- a * b / c rounded down, and 1 if there is a remainder; bit by bit if the product is not below 2^53.
local function scaled(a, b, c)
  local whole, rest, units, left = floor(a / c) * b, a % c, 0, 0
  if rest * b <= NEVER then
    units = floor(rest * b / c)
    return whole + units, rest * b > units * c and 1 or 0
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
  return whole + units, left > 0 and 1 or 0
end

local function is_over(w, at)
  return w.closed == 1 and at < w.start
end

-- Opens a bucket at a moment.
local function open(r, s, at)
  local kind, r1, r2, r3, r4, r5, r6 = r.kind, unpack(r)
  local till, a, b, raw, from, low = s.till, s.a, s.b, s.entries, 1, 0
  local start, used, counted, previous, closed, base, newest = at, 0, 0, 0, 0, 0, 0
  local capacity, per_unit, ceiling, undelayed, oldest
