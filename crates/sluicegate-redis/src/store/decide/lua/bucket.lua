-- Exact numbers, the borders of calendars, and buckets, which are opened and closed by the parts of their algorithms.
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

-- The borders of calendars around this moment, by their numbers: they follow the numbers of the policies.
local calendars = {}
for which = 2, #ARGV, 2 do
  local numbers, at = ARGV[which], byte(ARGV[which + 1]) % 128 * 49 + 1
  while at < #numbers - 8 do
    local id, count = unpacked('<dd', numbers, at)
    local known = calendars[id] or {}
    for border = 1, #known < count and count or 0 do known[border] = unpacked('<d', numbers, at + 8 + border * 8) end
    calendars[id], at = known, at + 16 + count * 8
  end
end

local function border_at(r, known, number)
  if number < 1 then return known[1] - (1 - number) * r[2] end
  if number > #known then return known[#known] + (number - #known) * r[2] end
  return known[number]
end

-- The number of the last border up to a moment. Beyond the known ones, all periods are as long as the longest.
local function number_at(r, known, at)
  local number = #known
  if at >= known[number] then return number + floor((at - known[number]) / r[2]) end
  if at < known[1] then return 1 - ceil((known[1] - at) / r[2]) end
  while at < known[number] do number = number - 1 end
  return number
end

-- The calendar of a rule; nil if no asker of this call has it, because its policy was replaced.
local function calendar_of(r)
  return r.kind == CALENDAR and calendars[r[5]] or nil
end

-- The beginning of the period of a calendar that a moment falls into.
local function period_at(r, at)
  local known = calendar_of(r)
  return known and border_at(r, known, number_at(r, known, at)) or at
end

-- The moment after this number of borders, as far into its period if that is long enough.
local function after_borders(r, at, count)
  local known = calendar_of(r)
  if not known then return at + count * r[2] end
  local number = number_at(r, known, at)
  local since = at - border_at(r, known, number)
  return min(border_at(r, known, number + count) + since, border_at(r, known, number + count + 1))
end

-- The number of borders of a calendar after one moment up to another; nil if it is unknown. Instances with other databases of time
-- zones have other borders: the nearest one counts.
local function borders_between(r, from, till)
  local known = calendar_of(r)
  if not known then return nil end
  local number = number_at(r, known, till)
  if border_at(r, known, number + 1) - till < till - border_at(r, known, number) then number = number + 1 end
  return number - number_at(r, known, from)
end

-- The number of borders of a calendar at which these units come back.
local function lumps(r, used)
  return ceil_div(min(used, r[3]), r[1])
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
  --> open: gcra window counter log calendar
  return { at = at, start = start, used = used, counted = counted, previous = previous, closed = closed, entries = raw, count = b,
    base = base, newest = newest }
end

-- The state of a bucket.
local function close(r, w)
  if w.used <= 0 and w.previous <= 0 and w.closed == 0 then return REST end
  local kind, r1, r2, r3, r4 = r.kind, unpack(r)
  local at, start, used, previous, closed = w.at, w.start, max(w.used, 0), w.previous, w.closed
  local raw, b, base, newest, from, low = w.entries, w.count, w.base, w.newest, 1, 0
  local new_till, new_a, new_b, kept, entry = 0, 0, 0, '', nil
  -- Units spent under another rule may take centuries to drain here.
  if r.step then used = min(used, max(floor((HORIZON + now - start) / r.step) - 1, 1) * r.per_step) end
  --> close: gcra window counter log calendar
  return { till = new_till, a = new_a, b = new_b, entries = entry and kept .. entry }
end

-- The state after `parts` were added to a bucket at a moment: at `from`, or at a later turn.
local function add_to(r, w, from, at, parts)
  w.used = min(w.used + parts, r.exact)
  if r.per_period then w.closed = (at > from or is_over(w, from)) and 1 or 0 end
  return close(r, w)
end

-- The state of a key that has spent `parts`, whatever the ceiling.
local function fill(r, parts)
  return add_to(r, open(r, REST, now), now, now, parts)
end

local function counted(r, s, at)
  return open(r, s, at).counted
end

-- In units, including windows used up by reserved turns.
local function outstanding(r, s)
  local w = open(r, s, now)
  local ahead = w.start > now and (borders_between(r, now, w.start) or ceil_div(w.start - now, r.period)) * r.per_period or 0
  return ceil_div(w.counted, r.per_unit) + ahead
end

local function remaining(r, s)
  local w = open(r, s, now)
  return is_over(w, now) and 0 or floor(max(r.capacity * r.per_unit - w.counted, 0) / r.per_unit)
end

-- The state after a charge up to the ceiling, and the units that took effect.
local function charge(r, s, cost)
  local w = open(r, s, now)
  local added = min(cost * r.per_unit, max(r.ceiling - w.used, 0))
  if added == 0 then return s, 0 end
  return add_to(r, w, now, now, added), floor(added / r.per_unit)
end
