-- Fixed window, interval token bucket. State: s.till, and s.a units used; s.closed if a later window was given out.
local window = {}

function window.borders(r, used)
  return ceil_div(used, r.limit)
end

function window.open(r, s, at)
  if s.till <= at then
    local offset = 0
    if r.aligned == 1 then offset = at % r.period end
    return { start = at - offset, used = 0, closed = 0 }
  end
  -- Under a limit that is lower than when it was written, a count may reach back to before the clock began.
  local count = min(s.a, floor(s.till / r.period) * r.limit)
  local start = s.till - window.borders(r, count) * r.period
  local passed = floor(max(at - start, 0) / r.period)
  return { start = start + passed * r.period, used = max(count - passed * r.limit, 0), closed = s.closed }
end

function window.state(r, w)
  if w.used <= 0 then
    if w.closed == 1 then return { till = w.start, a = 0, b = 0, closed = 1 } end
    return { till = 0, a = 0, b = 0, closed = 0 }
  end
  return { till = w.start + window.borders(r, w.used) * r.period, a = w.used, b = 0, closed = w.closed }
end

function window.slot(r, s, at, cost)
  if cost > r.burst then return NEVER, NEVER end
  local w = window.open(r, s, at)
  local excess = w.used + cost - r.burst
  local opens = at
  if excess > 0 then
    opens = w.start + window.borders(r, excess) * r.period
  elseif is_over(w, at) then
    opens = w.start
  end
  return opens, opens
end

function window.spend(r, s, at, cost)
  local w = window.open(r, s, at)
  w.used = min(w.used + cost, r.ceiling)
  w.closed = (at > now or is_over(w, now)) and 1 or 0
  return window.state(r, w)
end

function window.refund(r, s, at, ago, cost)
  local w = window.open(r, s, at)
  if ago > 0 and at - ago < w.start then return s end
  w.used = w.used - cost
  return window.state(r, w)
end

function window.remaining(r, s, at)
  local w = window.open(r, s, at)
  if is_over(w, at) then return 0 end
  return max(r.burst - w.used, 0)
end

function window.reset_after(r, s, at)
  return max(s.till - at, 0)
end

function window.set_back(r, s, step)
  if r.aligned == 1 then step = floor(step / r.period) * r.period end
  s.till = s.till - step
end

