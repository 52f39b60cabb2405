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
