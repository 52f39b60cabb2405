-- Sliding log. State: s.till, a period after the last entry; s.a the running sum before the first entry, s.b their number, and
-- s.entries: the time of each, and the running sum of units up to it, 7 bytes each. So lapsed entries, and the time of free room, are found
-- by halving, and lapsed entries are cut off in one step.

--- open
-- Limit, period, ceiling, part. The state is the running sum before the first entry, and the number of entries; the entries
-- before `low` have lapsed.
capacity, ceiling = r1, r3
if b > low then
  local total
  base = low > 0 and unpacked('<I7', raw, from + low * 14 - 7) or a
  newest, total = unpacked('<I7I7', raw, from + b * 14 - 14)
  oldest, used = unpacked('<I7', raw, from + low * 14), total - base
end
counted = used

--- close
-- Units in the part of the last entry join it.
local moment, count = newest < at and at or newest, b - low
if count == 0 or newest < moment - moment % r4 and count < ENTRIES then count = count + 1 end
if count > 1 then kept = sub(raw, from + low * 14, from + (low + count - 1) * 14 - 1) end
new_till, new_a, new_b, entry = moment + r2, base, count, pack('<I7I7', moment, base + used)

--- long
local log = {}

local MOVED = 256 -- the most entries after a refund that are rewritten

-- Units of one part of the period are one entry, with the time of the last unit; without a resolution, a part is a microsecond.
function log.rule(limit, period, ceiling, part)
  -- All units that pass under other texts are counted if this takes no more room: they lapse within a period.
  local most = part > 1 and NEVER or 2 * limit
  return { limit, period, ceiling, part, kind = LOG, capacity = limit, most = most, ceiling = ceiling, exact = NEVER, per_unit = 1,
    period = period, refill = period, part = part }
end

local function entry(s, index)
  return unpacked('<I7I7', s.entries, index * 14 + 1)
end

-- The first entry for which the test is true; one past the last if there is none.
local function first(s, test)
  local low, high = 0, s.b
  while low < high do
    local middle = floor((low + high) / 2)
    if test(entry(s, middle)) then high = middle else low = middle + 1 end
  end
  return low
end

local function part(r, at)
  return floor(at / r.part)
end

-- The first entry after the entry with the units of a moment.
local function behind_entry_of(r, s, at)
  local parts = part(r, at)
  return first(s, function(moment) return part(r, moment) > parts end)
end

local function state(r, base, entries)
  local count = #entries / 14
  if count == 0 then return REST end
  return { till = unpacked('<I7', entries, count * 14 - 13) + r.period, a = base, b = count, entries = entries }
end

-- The log without lapsed entries.
function log.cut(r, s)
  local lapsed = first(s, function(at) return at + r.period > now end)
  if lapsed == 0 then return s end
  local _, base = entry(s, lapsed - 1)
  return state(r, base, sub(s.entries, lapsed * 14 + 1))
end

-- The same entries under another period; entries of one of its parts are merged, with the time of the last.
function log.kept(r, s)
  if r.part == 1 or s.b == 0 then return state(r, s.a, s.entries or '') end
  local kept = {}
  for index = 0, s.b - 1 do
    if index + 1 == s.b or part(r, entry(s, index)) ~= part(r, entry(s, index + 1)) then
      kept[#kept + 1] = sub(s.entries, index * 14 + 1, index * 14 + 14)
    end
  end
  return state(r, s.a, table.concat(kept))
end

function log.is_sound(r, s)
  local total = counted(r, s, now)
  return total >= 0 and total <= NEVER and s.till <= now + HORIZON and s.till >= 0
end

function log.slot(r, s, at, cost)
  if cost > r.capacity then return NEVER, NEVER end
  local excess = counted(r, s, at) + cost - r.capacity
  if excess <= 0 then return at, at end
  local index = first(s, function(_, total) return total - s.a >= excess end)
  if index == s.b then return at, at end
  local opens = max(entry(s, index) + r.period, at)
  return opens, opens
end

-- The newest units stay, up to the capacity or the units before, whichever is more.
function log.count_rejected(r, s, cost)
  if cost == 0 then return s end
  local w = open(r, s, now)
  local after = add_to(r, w, now, now, min(cost, r.capacity))
  local over = counted(r, after, now) - max(r.capacity, w.counted)
  if over <= 0 then return after end
  local base = after.a + over
  local index = first(after, function(_, total) return total > base end)
  return state(r, base, sub(after.entries, index * 14 + 1))
end

-- Takes units out of the entries before an index, the newest first; none if too many others would have to move.
local function take(r, s, behind, cost)
  if behind == 0 or s.b - behind > MOVED then return s end
  local _, total = entry(s, behind - 1)
  local left = max(total - s.a - cost, 0)
  local taken = total - s.a - left
  local index = first(s, function(_, total) return total - s.a >= left end)
  local _, last = 0, s.a
  if index > 0 then _, last = entry(s, index - 1) end
  local kept = { sub(s.entries, 1, index * 14) }
  if left > last - s.a then kept[2] = pack('<I7I7', entry(s, index), s.a + left) end
  for moved = behind, s.b - 1 do
    local at, total = entry(s, moved)
    kept[#kept + 1] = pack('<I7I7', at, total - taken)
  end
  return state(r, s.a, table.concat(kept))
end

function log.refund(r, s, ago, cost)
  local latest = ago and now - ago or NEVER -- turns that have not started count as spent just now
  return take(r, s, behind_entry_of(r, s, latest), cost)
end

-- Takes units out of the entry with the units of a moment, if it exists.
local function take_at(r, s, at, cost)
  local behind = behind_entry_of(r, s, at)
  if behind == 0 or part(r, entry(s, behind - 1)) ~= part(r, at) then return nil end
  local _, total = entry(s, behind - 1)
  local before = s.a
  if behind > 1 then _, before = entry(s, behind - 2) end
  return take(r, s, behind, min(cost, total - before)), total - before
end

function log.give_back(r, s, spent, give)
  return take_at(r, s, spent.after.till, give) or s, 0
end

-- Turns come after all others, so that a gap is useless if an entry comes a period or more after it.
function log.take_back(r, s, turn)
  if s.b > 0 and s.till - r.period >= turn.after.till + r.period then return nil end
  local left, there = take_at(r, s, turn.after.till, turn.give)
  if left and there >= turn.give then return left, 0 end
end

-- As one entry: moving each would take long.
function log.set_back(r, s, step)
  if s.b == 0 then return s end
  return state(r, 0, pack('<I7I7', s.till - r.period - step, counted(r, s, now)))
end

function log.carried(r, was, s)
  return log.cut(r, log.kept(r, s))
end
