-- The shortest way: requests that spend from one bucket, whose value has nothing else, in the short form. It ends at the first other
-- request. A table costs a lone request more than its reply.
local key, place, count, slow = 1, 17, #KEYS, nil
local reply, size = count > 1 and { now, 0, 0, 0, 0, 0, 0, 0 }, 1
local order, is_single, mode, last, which, way, extra, since, cost, kind, r1, r2, r3, r4, r5, r6, text, from
while key <= count do
  local current = count > 1 and sub(orders, place, place + 21)
  if not current or current ~= order then
    order = current
    mode, last, which, way, extra, since, cost = unpacked('<BBBBHdd', orders, place)
    local numbers = ARGV[which]
    text = ARGV[which + 1]
    is_single, from = mode == SPEND and last == 1 and extra == 0 and cost > 0 and #numbers == 57, #text + 1
    if is_single then
      kind, r1, r2, r3, r4, r5, r6 = unpacked('<Bdddddd', numbers)
      is_single = kind < LOG and (now <= deadline or way < 128)
    end
  end
  if not is_single then break end
  local name, opens, written, form = KEYS[key], 0, 0, 0
  local begun, till, a, b, birth = since > now and since or now, 0, 0, 0, 0
  local raw = pcall('GET', name)
  if raw then
    if #raw ~= from + 26 or find(raw, text, 1, true) ~= 1 then break end
    written, begun, form, till, a, b = unpacked('<I7I7BI6I3I3', raw, from)
    till, birth = written + till, begun
    if form > 0 or begun < since or written - now > STEP or till > now + HORIZON then break end
  end
  local at, start, used, counted, previous, closed = now, now, 0, 0, 0, 0
  local capacity, per_unit, ceiling, undelayed = 0, 1, 0, -1
  --> open: gcra window counter
  local adds = cost * per_unit
  if closed > 0 or not (used < NEVER) or undelayed >= 0 and used > undelayed then break end
  if counted + adds > capacity then
    if way % 64 >= 32 then break end
    opens = 1
  else
    local new_till, new_a, new_b = 0, 0, 0
    used = used + adds
    -- A key at rest is like a new one.
    if till <= now and begun < now then begun = now end
    if begun > now then break end
    --> close: gcra window counter
    if new_till < now or new_till - now >= 281474976710656 or new_a >= 16777216 or new_b >= 16777216 then break end
    local value = text .. pack('<I7I7BI6I3I3', now, begun, 0, new_till - now, new_a, new_b)
    local rests = new_till - new_till % SPAN
    if raw and slack == 0 and till - till % SPAN == rests then
      call('SET', name, value, 'KEEPTTL')
    else
      local expiry = (rests + SPAN - now) / 1000
      call('SET', name, value, 'PX', expiry - expiry % 1 + 1 + slack)
    end
  end
  if count == 1 then return pack('<dddddddd', now, 0, till, a, b, opens, birth, 0) end
  reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = 0, till, a, b
  reply[size + 5], reply[size + 6], reply[size + 7] = opens, birth, 0
  key, place, size = key + 1, place + 22, size + 7
end
