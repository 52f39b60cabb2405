-- Fixed window, interval token bucket. State: s.till, and s.a units used; s.closed if a later window was given out.
local window = {}

function window.rule(limit, period, burst, ceiling, aligned)
  return { limit = limit, period = period, capacity = burst, most = burst + limit, ceiling = ceiling, aligned = aligned == 1,
    refill = ceil_div(burst, limit) * period, per_unit = 1 }
end

function window.borders(r, used)
  return ceil_div(used, r.limit)
end

function window.open(r, s, at)
  if s.till <= at then
    return { start = r.aligned and at - at % r.period or at, used = 0, closed = 0 }
  end
  local start = s.till - window.borders(r, s.a) * r.period
  local passed = floor(max(at - start, 0) / r.period)
  return { start = start + passed * r.period, used = max(s.a - passed * r.limit, 0), closed = s.closed }
end

function window.state(r, w)
  if w.used <= 0 then
    if w.closed == 1 then return { till = w.start, a = 0, b = 0, closed = 1 } end
    return REST
  end
  -- What was spent under another rule may take centuries here.
  local used = min(w.used, max(floor((HORIZON + now - w.start) / r.period), 1) * r.limit)
  return { till = w.start + window.borders(r, used) * r.period, a = used, b = 0, closed = w.closed }
end

function window.counted(r, s, at)
  return window.open(r, s, at).used
end

window.used = window.counted

-- With the windows that turns ahead have used up.
function window.outstanding(r, s)
  local w = window.open(r, s, now)
  return w.used + ceil_div(max(w.start - now, 0), r.period) * r.limit
end

function window.slot(r, s, at, cost)
  if cost > r.capacity then return NEVER, NEVER end
  local w = window.open(r, s, at)
  local excess = w.used + cost - r.capacity
  local opens = at
  if excess > 0 then
    opens = w.start + window.borders(r, excess) * r.period
  elseif is_over(w, at) then
    opens = w.start
  end
  return opens, opens
end

function window.spend(r, s, from, at, cost)
  local w = window.open(r, s, at)
  w.used = min(w.used + cost, EXACT)
  w.closed = (at > from or is_over(w, from)) and 1 or 0
  return window.state(r, w)
end

function window.charge(r, s, cost)
  local added = min(cost, max(r.ceiling - window.open(r, s, now).used, 0))
  return added > 0 and window.spend(r, s, now, now, added) or s, added
end

function window.refund(r, s, ago, cost)
  local w = window.open(r, s, now)
  if ago and ago > 0 and now - ago < w.start then return s end
  w.used = w.used - cost
  return window.state(r, w)
end

-- Each border since has given units back, those first that came first.
function window.give_back(r, s, spent, give)
  local w = window.open(r, s, now)
  local borders = floor(max(w.start - window.open(r, spent.after, spent.at).start, 0) / r.period)
  local leaked = max(borders * r.limit - spent.before, 0)
  local given = min(give, max(spent.cost - leaked, 0), w.used)
  w.used = w.used - given
  return window.state(r, w), given
end

-- Whoever came later: a count forgets the order.
function window.take_back(r, s, turn)
  local w = window.open(r, s, turn.at)
  if w.start ~= window.open(r, turn.after, turn.at).start then return nil end
  w.used = w.used - turn.give
  return window.state(r, w), turn.give
end

function window.remaining(r, s)
  local w = window.open(r, s, now)
  if is_over(w, now) then return 0 end
  return max(r.capacity - w.used, 0)
end

function window.reset_after(r, s)
  return max(s.till - now, 0)
end

function window.set_back(r, s, step)
  if r.aligned then step = floor(step / r.period) * r.period end
  return { till = s.till - step, a = s.a, b = 0, closed = s.closed }
end

