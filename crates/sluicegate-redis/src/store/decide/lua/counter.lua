-- Sliding counter. State: s.till two periods after the window's start, the previous count s.a and the current s.b.
local counter = {}

function counter.rule(limit, period, unit, ceiling, up)
  return { capacity = limit, most = limit, period = period, unit = unit, ceiling = ceiling, units = period / unit, up = up,
    refill = 2 * period, per_unit = 1, exact = max(min(CLOSED / 2 - 1, floor(EXACT / (period / unit)) * 2), limit) }
end

function counter.open(r, s, at)
  local index = floor(at / r.period)
  if s.till <= at then return { start = index * r.period, previous = 0, current = 0, closed = 0 } end
  local stored = max(floor(s.till / r.period) - 2, 0)
  if index > stored then return { start = index * r.period, previous = s.b, current = 0, closed = s.closed } end
  return { start = stored * r.period, previous = s.a, current = s.b, closed = s.closed }
end

function counter.state(r, w)
  if w.previous <= 0 and w.current <= 0 and w.closed == 0 then return REST end
  return { till = w.start + 2 * r.period, a = w.previous, b = w.current, closed = w.closed }
end

function counter.elapsed(r, w, at)
  return floor(max(at - w.start, 0) / r.unit)
end

function counter.counted(r, s, at)
  local w = counter.open(r, s, at)
  local share = w.previous * max(r.units - counter.elapsed(r, w, at), 0) / r.units
  return (r.up == 1 and ceil(share) or floor(share)) + w.current
end

counter.used = counter.counted

-- With the windows that turns ahead have used up.
function counter.outstanding(r, s)
  local w = counter.open(r, s, now)
  return counter.counted(r, s, now) + ceil_div(max(w.start - now, 0), r.period) * r.capacity
end

function counter.falls_to(r, previous, target)
  if previous <= target then return 0 end
  if r.up == 1 then return r.units - floor(target * r.units / previous) end
  return r.units - (ceil_div((target + 1) * r.units, previous) - 1)
end

function counter.sinks_to(r, w, at, target)
  if w.current <= target then
    local elapsed = counter.falls_to(r, w.previous, target - w.current)
    if elapsed <= counter.elapsed(r, w, at) then
      if is_over(w, at) then return w.start end
      return at
    end
    if elapsed < r.units then return w.start + elapsed * r.unit end
  end
  return w.start + r.period + min(counter.falls_to(r, w.current, target), r.units) * r.unit
end

function counter.slot(r, s, at, cost)
  if cost > r.capacity then return NEVER, NEVER end
  local opens = counter.sinks_to(r, counter.open(r, s, at), at, r.capacity - cost)
  return opens, opens
end

function counter.spend(r, s, from, at, cost)
  local w = counter.open(r, s, at)
  w.current = min(w.current + cost, r.exact)
  w.closed = (at > from or is_over(w, from)) and 1 or 0
  return counter.state(r, w)
end

function counter.charge(r, s, cost)
  local added = min(cost, max(r.ceiling - counter.open(r, s, now).current, 0))
  return added > 0 and counter.spend(r, s, now, now, added) or s, added
end

function counter.refund(r, s, ago, cost)
  local w = counter.open(r, s, now)
  ago = ago or 0
  local spent, older = now - ago, cost
  if spent >= w.start or ago == 0 then
    older = max(cost - w.current, 0)
    w.current = max(w.current - cost, 0)
  end
  if spent + r.period >= w.start or ago == 0 then w.previous = max(w.previous - older, 0) end
  return counter.state(r, w)
end

-- Takes units from the count of the window in which something was spent; says how many were there.
local function take_from(r, w, spent, units)
  local start, count = counter.open(r, spent.after, spent.at).start, nil
  if w.start == start then
    count = 'current'
  elseif w.start == start + r.period then
    count = 'previous'
  else
    return nil
  end
  local taken = min(units, w[count])
  w[count] = w[count] - taken
  return taken
end

function counter.give_back(r, s, spent, give)
  local w = counter.open(r, s, now)
  local given = take_from(r, w, spent, min(give, spent.cost))
  if not given then return s, 0 end
  return counter.state(r, w), given
end

-- Of the last window only: later turns are of hardly any use to a hole in the one before.
function counter.take_back(r, s, turn)
  local w = counter.open(r, s, turn.at)
  if w.start ~= counter.open(r, turn.after, turn.at).start then return nil end
  w.current = max(w.current - turn.give, 0)
  return counter.state(r, w), turn.give
end

function counter.remaining(r, s)
  if is_over(counter.open(r, s, now), now) then return 0 end
  return max(r.capacity - counter.counted(r, s, now), 0)
end

function counter.reset_after(r, s)
  return counter.sinks_to(r, counter.open(r, s, now), now, 0) - now
end

function counter.set_back(r, s, step)
  return { till = s.till - floor(step / r.period) * r.period, a = s.a, b = s.b, closed = s.closed }
end

