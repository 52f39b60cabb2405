-- The bucket of a state (till, a, b) at a moment, under the numbers of its rule: the beginning of its window, what is used in it, what
-- of that and of the window before counts, and whether later windows were given out. The short and the long way both consist of this.
if kind == GCRA then
  -- Unit, ticks, spacing, burst, ceiling, undelayed.
  capacity, per_unit, ceiling, undelayed = r4 * r3, r3, r5, r6
  start = at - at % r1
  if till > start then
    used = (till - start) / r1
    used = (used - used % 1) * r2 - a
    if used < 0 then used = 0 elseif used > NEVER then used = NEVER end
  end
  counted = used
elseif kind == WINDOW then
  -- Limit, period, burst, ceiling, and a border plus one if the windows of all keys have borders in common.
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
elseif kind == COUNTER then
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
elseif kind == LOG then
  -- Limit, period, ceiling, part. The state is the running sum before the first entry, and the number of entries, of which those
  -- before `low` have lapsed.
  capacity, ceiling = r1, r3
  if b > low then
    local total
    base = low > 0 and unpacked('<I7', raw, from + low * 14 - 7) or a
    newest, total = unpacked('<I7I7', raw, from + b * 14 - 14)
    oldest, used = unpacked('<I7', raw, from + low * 14), total - base
  end
  counted = used
end
