-- GCRA, greedy token bucket, leaky bucket. State: s.till, and s.a parts that the arrival time lies before it.
local gcra = {}

function gcra.rule(unit, ticks, spacing, burst, ceiling, undelayed)
  return { unit = unit, ticks = ticks, spacing = spacing, capacity = burst, most = burst, ceiling = ceiling,
    full = burst * spacing, refill = ceil_div(burst * spacing, ticks) * unit, undelayed = undelayed, queues = undelayed >= 0, per_unit = spacing }
end

function gcra.level(r, s, at)
  local start = at - at % r.unit
  if s.till <= start then return 0 end
  return min(max(floor((s.till - start) / r.unit) * r.ticks - s.a, 0), NEVER)
end

gcra.counted = gcra.level

function gcra.used(r, s, at)
  return ceil_div(gcra.level(r, s, at), r.spacing)
end

gcra.outstanding = gcra.used

function gcra.state(r, level, at)
  if level <= 0 then return REST end
  local units = ceil_div(level, r.ticks)
  -- What was spent under another rule may take centuries here.
  local most = floor((HORIZON + now - at) / r.unit) - 1
  if units > most then units, level = most, most * r.ticks end
  return { till = at - at % r.unit + units * r.unit, a = units * r.ticks - level, b = 0, closed = 0 }
end

-- Exact however far ahead it reaches, as is the next.
function gcra.lowered(r, s, parts)
  local a = s.a + parts
  local units = floor(a / r.ticks)
  local till = s.till - units * r.unit
  if till <= now - now % r.unit then return REST end
  return { till = till, a = a - units * r.ticks, b = 0, closed = 0 }
end

function gcra.sinks_to(r, s, target)
  return s.till - floor((target + s.a) / r.ticks) * r.unit
end

function gcra.slot(r, s, at, cost)
  if cost > r.capacity then return NEVER, NEVER end
  local opens = max(gcra.sinks_to(r, s, r.full - cost * r.spacing), at)
  if not r.queues then return opens, opens end
  return opens, max(gcra.sinks_to(r, s, r.undelayed), opens)
end

function gcra.spend(r, s, from, at, cost)
  if r.queues then
    -- A queue's own turn does not move its schedule.
    local _, departs = gcra.slot(r, s, from, cost)
    if at <= departs then at = from end
  end
  local level = gcra.level(r, s, at)
  if level == NEVER then return s end
  return gcra.state(r, min(level + cost * r.spacing, NEVER), at)
end

function gcra.charge(r, s, cost)
  local level = gcra.level(r, s, now)
  local added = min(cost * r.spacing, max(r.ceiling - level, 0))
  if added == 0 then return s, 0 end
  return gcra.state(r, level + added, now), floor(added / r.spacing)
end

function gcra.refund(r, s, ago, cost)
  return gcra.lowered(r, s, max(cost * r.spacing - ceil_div(ago or 0, r.unit) * r.ticks, 0))
end

-- Units leak in the order in which they came: of a cost nothing has, before what it found, less what was given back of that.
function gcra.give_back(r, s, spent, give)
  local passed = max(now - now % r.unit - (spent.at - spent.at % r.unit), 0)
  local leaked = max(passed / r.unit * r.ticks - spent.before, 0)
  local given = min(give * r.spacing, max(spent.cost * r.spacing - leaked, 0))
  return gcra.lowered(r, s, given), given
end

-- A turn is given up whole: a part of it cannot be told from one that came later.
function gcra.take_back(r, s, turn)
  if turn.give == turn.cost and s.till == turn.after.till and s.a == turn.after.a then return turn.found, 0 end
end

function gcra.remaining(r, s)
  return floor(max(r.full - gcra.level(r, s, now), 0) / r.spacing)
end

function gcra.reset_after(r, s)
  return max(s.till - now, 0)
end

function gcra.set_back(r, s, step)
  return { till = s.till - step, a = s.a, b = 0, closed = 0 }
end

