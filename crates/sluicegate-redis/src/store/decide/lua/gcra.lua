-- GCRA, greedy token bucket, leaky bucket. State: when it has drained, and a: the parts that the arrival time lies before that.

--- open
-- Unit, ticks, spacing, burst, ceiling, undelayed.
capacity, per_unit, ceiling, undelayed = r4 * r3, r3, r5, r6
start = at - at % r1
if till > start then
  used = (till - start) / r1
  used = (used - used % 1) * r2 - a
  if used < 0 then used = 0 elseif used > NEVER then used = NEVER end
end
counted = used

--- close
local units = used / r2
if units % 1 > 0 then units = units - units % 1 + 1 end
new_till, new_a = start + units * r1, units * r2 - used

--- long
local gcra = {}

function gcra.rule(unit, ticks, spacing, burst, ceiling, undelayed)
  return { unit, ticks, spacing, burst, ceiling, undelayed, kind = GCRA, capacity = burst, most = burst, ceiling = ceiling,
    exact = NEVER, per_unit = spacing, step = unit, per_step = ticks, refill = ceil_div(burst * spacing, ticks) * unit,
    undelayed = undelayed, queues = undelayed >= 0 }
end

-- Exact however far ahead it reaches, like the next function.
function gcra.lowered(r, s, parts)
  local a = s.a + parts
  local units = floor(a / r.per_step)
  local till = s.till - units * r.step
  if till <= now - now % r.step then return REST end
  return { till = till, a = a - units * r.per_step, b = 0 }
end

function gcra.sinks_to(r, s, target)
  return s.till - floor((target + s.a) / r.per_step) * r.step
end

function gcra.slot(r, s, at, cost)
  if cost > r.capacity then return NEVER, NEVER end
  local opens = max(gcra.sinks_to(r, s, (r.capacity - cost) * r.per_unit), at)
  if not r.queues then return opens, opens end
  return opens, max(gcra.sinks_to(r, s, r.undelayed), opens)
end

function gcra.refund(r, s, ago, cost)
  return gcra.lowered(r, s, max(cost * r.per_unit - ceil_div(ago or 0, r.step) * r.per_step, 0))
end

-- Units leak in the order of their arrival: a cost begins to leak after the units that it found, less those given back since, have leaked.
function gcra.give_back(r, s, spent, give)
  local passed = max(now - now % r.step - (spent.at - spent.at % r.step), 0)
  local leaked = max(passed / r.step * r.per_step - spent.before, 0)
  local given = min(give * r.per_unit, max(spent.cost * r.per_unit - leaked, 0))
  return gcra.lowered(r, s, given), given
end

-- A turn is given up whole: a part of it cannot be distinguished from a later turn.
function gcra.take_back(r, s, turn)
  if turn.give == turn.cost and s.till == turn.after.till and s.a == turn.after.a then return turn.found, 0 end
end

function gcra.set_back(r, s, step)
  return { till = s.till - step, a = s.a, b = 0 }
end

function gcra.carried(r, was, s)
  local parts, more = scaled(open(was, s, now).used, r.per_unit, was.per_unit)
  return fill(r, min(parts + more, NEVER))
end
