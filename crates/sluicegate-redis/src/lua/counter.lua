-- Sliding counter. State: s.till two periods after the window's start, the previous count s.a and the current s.b.
local counter = {}

function counter.open(r, s, at)
  local index = floor(at / r.period)
  if s.till <= at then return { start = index * r.period, previous = 0, current = 0, closed = 0 } end
  local stored = max(floor(s.till / r.period) - 2, 0)
  if index > stored then
    return { start = index * r.period, previous = s.b, current = 0, closed = s.closed }
  end
  return { start = stored * r.period, previous = s.a, current = s.b, closed = s.closed }
end

function counter.state(r, w)
  if w.previous <= 0 and w.current <= 0 and w.closed == 0 then return { till = 0, a = 0, b = 0, closed = 0 } end
  return { till = w.start + 2 * r.period, a = w.previous, b = w.current, closed = w.closed }
end

function counter.elapsed(r, w, at)
  return floor(max(at - w.start, 0) / r.unit)
end

function counter.counted(r, w, at)
  local units = r.period / r.unit
  return floor(w.previous * max(units - counter.elapsed(r, w, at), 0) / units) + w.current
end

function counter.falls_to(r, previous, target)
  if previous <= target then return 0 end
  local units = r.period / r.unit
  return units - (ceil_div((target + 1) * units, previous) - 1)
end

function counter.sinks_to(r, w, at, target)
  local units = r.period / r.unit
  if w.current <= target then
    local elapsed = counter.falls_to(r, w.previous, target - w.current)
    if elapsed <= counter.elapsed(r, w, at) then
      if is_over(w, at) then return w.start end
      return at
    end
    if elapsed < units then return w.start + elapsed * r.unit end
  end
  return w.start + r.period + min(counter.falls_to(r, w.current, target), units) * r.unit
end

function counter.slot(r, s, at, cost)
  if cost > r.limit then return NEVER, NEVER end
  local opens = counter.sinks_to(r, counter.open(r, s, at), at, r.limit - cost)
  return opens, opens
end

function counter.spend(r, s, at, cost)
  local w = counter.open(r, s, at)
  w.current = min(w.current + cost, r.ceiling)
  w.closed = (at > now or is_over(w, now)) and 1 or 0
  return counter.state(r, w)
end

function counter.refund(r, s, at, ago, cost)
  local w = counter.open(r, s, at)
  local spent, older = at - ago, cost
  if spent >= w.start or ago == 0 then
    older = max(cost - w.current, 0)
    w.current = max(w.current - cost, 0)
  end
  if spent + r.period >= w.start or ago == 0 then w.previous = max(w.previous - older, 0) end
  return counter.state(r, w)
end

function counter.remaining(r, s, at)
  local w = counter.open(r, s, at)
  if is_over(w, at) then return 0 end
  return max(r.limit - counter.counted(r, w, at), 0)
end

function counter.reset_after(r, s, at)
  return counter.sinks_to(r, counter.open(r, s, at), at, 0) - at
end

function counter.set_back(r, s, step)
  s.till = s.till - floor(step / r.period) * r.period
end

