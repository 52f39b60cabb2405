-- The short way: for a value with only the asker's own group, or no value. It is one flat loop: making
-- functions and tables is most of the cost of a script. Unusual cases take the long way, with their whole request.
reply = reply or { now, 0, 0, 0, 0, 0, 0, 0 }
while key <= count do
  local first, began, begins_at = key, place, size
  local granted, usual, late, counts, last, writes = true, true, false, false, 0, 0
  local names, values, expiries, name, value, expiry, raw
  size = size + 1
  reply[size] = 0
  repeat
    local mode, which, way, extra, since, cost
    mode, last, which, way, extra, since, cost = unpacked('<BBBBHdd', orders, place)
    local numbers, text = ARGV[which], ARGV[which + 1]
    local quotas, from = byte(text) % 128, #text + 1
    local spends, till_last, found_last, written, states, lapsed, floors = false, 0, 0, 0, nil, false, nil
    if way >= 128 and now > deadline then usual, late = false, true end
    if way % 64 >= 32 and mode ~= PEEK then counts = true end
    if mode > CHARGE and mode ~= LEASE then
      usual = false
    elseif usual then
      if mode == LEASE and key > first and KEYS[key] == KEYS[key - 1] then
        -- A lease after the spend of its bucket: it reads the units left by that spend, which are not written yet.
        if name == KEYS[key] then raw = value end
      else
        raw = pcall('GET', KEYS[key])
      end
      if raw then
        usual = #raw >= from + 26 and find(raw, text, 1, true) == 1
      elseif since < now then
        since = now
      end
    end
    if usual then
      for quota = 1, quotas do
        local kind, r1, r2, r3, r4, r5, r6 = unpacked('<Bdddddd', numbers, quota * 49 - 48)
        local till, a, b, birth, given = 0, 0, 0, 0, 0
        if quota > 1 then cost = unpacked('<d', orders, place + quota * 8 + 6) end
        if raw then
          if quota == 1 then
            local begun
            written, begun = unpacked('<I7I7', raw, from)
            from = from + 14
            if begun >= since and written - now <= STEP then since = begun else usual = false end
          end
