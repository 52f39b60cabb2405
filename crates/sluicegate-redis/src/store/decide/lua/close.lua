-- The state of a bucket, once `used` is what is used in it.
if kind == GCRA then
  local units = used / r2
  if units % 1 > 0 then units = units - units % 1 + 1 end
  new_till, new_a = start + units * r1, units * r2 - used
elseif kind == WINDOW then
  local borders = used / r1
  if borders % 1 > 0 then borders = borders - borders % 1 + 1 end
  new_till, new_a, new_b = start + borders * r2, used, closed
elseif kind == COUNTER then
  new_till, new_a, new_b = start + 2 * r2, previous, used + closed * CLOSED
elseif kind == LOG then
  -- What comes in the part of the last entry joins it.
  local moment, count = newest < at and at or newest, b - low
  if count == 0 or newest < moment - moment % r4 and count < ENTRIES then count = count + 1 end
  if count > 1 then kept = sub(raw, from + low * 14, from + (low + count - 1) * 14 - 1) end
  new_till, new_a, new_b, entry = moment + r2, base, count, pack('<I7I7', moment, base + used)
end
