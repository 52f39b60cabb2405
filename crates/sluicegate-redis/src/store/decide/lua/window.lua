-- Fixed window, interval token bucket. State: the end of the last window with units, a: units used, and b: 1 if a later window
-- has a reserved turn. One window begins at r.from, if that is not negative; otherwise a key's first unit begins its window.

--- open
-- Limit, period, burst, ceiling, and a border plus one if the windows of all keys have common borders.
capacity, ceiling = r3, r4
if till > at then
  local borders = a / r1
  if borders % 1 > 0 then borders = borders - borders % 1 + 1 end
  start, used, closed = till - borders * r2, a, b
  if at >= start + r2 then
    local passed = (at - start) / r2
    passed = passed - passed % 1
    start, used = start + passed * r2, a - passed * r1
    if used < 0 then used = 0 end
  end
elseif r5 > 0 then
  start = at - (at - r5 + 1) % r2
end
counted = used

--- close
local borders = used / r1
if borders % 1 > 0 then borders = borders - borders % 1 + 1 end
new_till, new_a, new_b = start + borders * r2, used, closed

--- long
local window = {}

function window.rule(limit, period, burst, ceiling, from)
  return { limit, period, burst, ceiling, from, kind = WINDOW, capacity = burst, most = burst + limit, ceiling = ceiling,
    exact = EXACT, per_unit = 1, step = period, per_step = limit, period = period, per_period = limit < EXACT and limit or burst,
    refill = ceil_div(burst, limit) * period, from = from - 1, lasting = NEVER }
end

function window.slot(r, s, at, cost)
  if cost > r.capacity then return NEVER, NEVER end
  local w = open(r, s, at)
  local opens = at
  if w.used + cost > r.capacity then
    opens = after_borders(r, w.start, max(ceil_div(min(w.used, r.lasting) + cost - r.capacity, r.per_step), 1))
  elseif is_over(w, at) then
    opens = w.start
  end
  return opens, opens
end

function window.refund(r, s, ago, cost)
  local w = open(r, s, now)
  if ago and ago > 0 and now - ago < w.start then return s end
  w.used = w.used - cost
  return close(r, w)
end

-- Each border since has given units back, the oldest first, and the first one has ended a debt.
function window.give_back(r, s, spent, give)
  local w = open(r, s, now)
  local from = open(r, spent.after, spent.at).start
  local borders = borders_between(r, from, w.start) or floor(max(w.start - from, 0) / r.period)
  local last = min(spent.before + spent.cost, borders > 0 and r.lasting or NEVER)
  local given = min(give, max(last - max(spent.before, borders * r.per_step), 0), w.used)
  w.used = w.used - given
  return close(r, w), given
end

-- Even if units came later: a count forgets the order.
function window.take_back(r, s, turn)
  local w = open(r, s, turn.at)
  if w.start ~= open(r, turn.after, turn.at).start then return nil end
  w.used = w.used - turn.give
  return close(r, w), turn.give
end

function window.set_back(r, s, step)
  if r.from >= 0 then step = floor(step / r.period) * r.period end
  return { till = s.till - step, a = s.a, b = s.b }
end

function window.carried(r, was, s)
  if r.period == was.period and r.from == was.from then return close(r, open(was, s, now)) end
end
