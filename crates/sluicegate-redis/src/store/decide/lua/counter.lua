-- Sliding counter. State: two periods after the window's start, the previous count a and the current b.

--- open
-- Limit, period, unit, ceiling, whether shares are rounded up.
capacity, ceiling, start = r1, r4, at - at % r2
if till > at then
  local stored = till - till % r2 - 2 * r2
  if stored < 0 then stored = 0 end
  if b >= CLOSED then b, closed = b - CLOSED, 1 end
  if start > stored then previous = b else start, previous, used = stored, a, b end
end
counted = used
if previous > 0 then
  local left = r2 / r3
  local weight = left
  if at > start then
    local elapsed = (at - start) / r3
    weight = left - elapsed + elapsed % 1
  end
  if weight > 0 then
    weight = previous * weight / left
    counted = counted + (weight - weight % 1)
    if r5 == 1 and weight % 1 > 0 then counted = counted + 1 end
  end
end

--- close
new_till, new_a, new_b = start + 2 * r2, previous, used + closed * CLOSED

--- long
local counter = {}

function counter.rule(limit, period, unit, ceiling, up)
  return { limit, period, unit, ceiling, up, kind = COUNTER, capacity = limit, most = limit, ceiling = ceiling, per_unit = 1,
    exact = max(min(CLOSED / 2 - 1, floor(EXACT / (period / unit)) * 2), limit), period = period, per_period = limit,
    refill = 2 * period, unit = unit, units = period / unit, up = up }
end

function counter.falls_to(r, previous, target)
  if previous <= target then return 0 end
  if r.up == 1 then return r.units - floor(target * r.units / previous) end
  return r.units - (ceil_div((target + 1) * r.units, previous) - 1)
end

function counter.sinks_to(r, w, at, target)
  if w.used <= target then
    local elapsed = counter.falls_to(r, w.previous, target - w.used)
    if elapsed <= floor(max(at - w.start, 0) / r.unit) then
      return is_over(w, at) and w.start or at
    end
    if elapsed < r.units then return w.start + elapsed * r.unit end
  end
  return w.start + r.period + min(counter.falls_to(r, w.used, target), r.units) * r.unit
end

function counter.slot(r, s, at, cost)
  if cost > r.capacity then return NEVER, NEVER end
  local opens = counter.sinks_to(r, open(r, s, at), at, r.capacity - cost)
  return opens, opens
end

function counter.refund(r, s, ago, cost)
  local w = open(r, s, now)
  ago = ago or 0
  local spent, older = now - ago, cost
  if spent >= w.start or ago == 0 then
    older = max(cost - w.used, 0)
    w.used = max(w.used - cost, 0)
  end
  if spent + r.period >= w.start or ago == 0 then w.previous = max(w.previous - older, 0) end
  return close(r, w)
end

function counter.give_back(r, s, spent, give)
  local w = open(r, s, now)
  local start, count = open(r, spent.after, spent.at).start, nil
  if w.start == start then
    count = 'used'
  elseif w.start == start + r.period then
    count = 'previous'
  else
    return s, 0
  end
  local given = min(give, spent.cost, w[count])
  w[count] = w[count] - given
  return close(r, w), given
end

-- Only for the last window: later turns can hardly use a gap in the window before.
function counter.take_back(r, s, turn)
  local w = open(r, s, turn.at)
  if w.start ~= open(r, turn.after, turn.at).start then return nil end
  w.used = max(w.used - turn.give, 0)
  return close(r, w), turn.give
end

function counter.reset_after(r, s)
  return counter.sinks_to(r, open(r, s, now), now, 0) - now
end

function counter.set_back(r, s, step)
  return { till = s.till - floor(step / r.period) * r.period, a = s.a, b = s.b }
end

function counter.carried(r, was, s)
  if r.period == was.period then return s end
end
