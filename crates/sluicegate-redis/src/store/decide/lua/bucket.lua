  return { at = at, start = start, used = used, counted = counted, previous = previous, closed = closed, entries = raw, count = b,
    base = base, newest = newest }
end

-- The state of a bucket.
local function close(r, w)
  if w.used <= 0 and w.previous <= 0 and w.closed == 0 then return REST end
  local kind, r1, r2, r3, r4 = r.kind, unpack(r)
  local at, start, used, previous, closed = w.at, w.start, max(w.used, 0), w.previous, w.closed
  local raw, b, base, newest, from, low = w.entries, w.count, w.base, w.newest, 1, 0
  local new_till, new_a, new_b, kept, entry = 0, 0, 0, '', nil
  -- Units spent under another rule may take centuries to drain here.
  if r.step then used = min(used, max(floor((HORIZON + now - start) / r.step) - 1, 1) * r.per_step) end
