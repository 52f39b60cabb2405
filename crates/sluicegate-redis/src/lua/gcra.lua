-- GCRA, greedy token bucket, leaky bucket. State: s.till, and s.a parts that the arrival time lies before it.
local gcra = { is_short = true }

function gcra.level(r, s, at)
  local start = at - at % r.unit
  if s.till <= start then return 0 end
  return min(max(floor((s.till - start) / r.unit) * r.ticks - s.a, 0), r.ceiling)
end

function gcra.drain(r, level)
  return ceil_div(level, r.ticks) * r.unit
end

function gcra.state(r, level, at)
  if level <= 0 then return { till = 0, a = 0, b = 0, closed = 0 } end
  local units = ceil_div(level, r.ticks)
  return { till = at - at % r.unit + units * r.unit, a = units * r.ticks - level, b = 0, closed = 0 }
end

function gcra.slot(r, s, at, cost)
  if cost > r.burst then return NEVER, NEVER end
  local level, start = gcra.level(r, s, at), at - at % r.unit
  local excess = level - (r.burst - cost) * r.spacing
  local opens = at
  if excess > 0 then opens = start + gcra.drain(r, excess) end
  local departs = opens
  if r.undelayed >= 0 and level > r.undelayed then
    departs = max(opens, start + gcra.drain(r, level - r.undelayed))
  end
  return opens, departs
end

function gcra.spend(r, s, at, cost)
  if r.undelayed >= 0 then
    local _, departs = gcra.slot(r, s, now, cost)
    if at <= departs then at = now end
  end
  return gcra.state(r, min(gcra.level(r, s, at) + cost * r.spacing, r.ceiling), at)
end

function gcra.refund(r, s, at, ago, cost)
  local counts = max(cost * r.spacing - ceil_div(ago, r.unit) * r.ticks, 0)
  return gcra.state(r, gcra.level(r, s, at) - counts, at)
end

function gcra.remaining(r, s, at)
  return floor(max(r.burst * r.spacing - gcra.level(r, s, at), 0) / r.spacing)
end

function gcra.reset_after(r, s, at)
  return max(s.till - at, 0)
end

function gcra.set_back(r, s, step)
  s.till = s.till - step
end

