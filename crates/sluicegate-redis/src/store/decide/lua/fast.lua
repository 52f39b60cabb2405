-- The short way: a value that holds the asker's own group and nothing else, or nothing. All of it is one flat loop: making
-- functions and tables is most of what a script costs. What is out of the ordinary goes the long way, with all of its request.
local key, place, count, slow = 1, 9, #KEYS, nil
while key <= count do
  local first, began, begins_at = key, place, size
  local granted, usual, counts, last, writes = true, true, false, 0, 0
  local names, values, expiries, name, value, expiry, raw
  size = size + 1
  reply[size] = 0
  repeat
    local mode, which, way, extra, since, cost
    mode, last, which, way, extra, since, cost = unpacked('<BBBBHdd', orders, place)
    local text = ARGV[which]
    local quotas, from = (#text - 9) / 53, #text + 1
    local spends, till_last, states, lapsed, floors = false, 0, nil, false, nil
    if way % 64 >= 32 and mode ~= PEEK then counts = true end
    if mode > CHARGE and mode ~= LEASE then
      usual = false
    elseif usual then
      if mode == LEASE and key > first and KEYS[key] == KEYS[key - 1] then
        -- Behind the spend of its bucket: of what that leaves, and has not written yet.
        if name == KEYS[key] then raw = value end
      else
        raw = pcall('GET', KEYS[key])
      end
      if raw then
        usual = #raw >= from + 55 and find(raw, text, 1, true) == 1
      elseif since < now then
        since = now
      end
    end
    if usual then
      for quota = 1, quotas do
        local kind, _, r1, r2, r3, r4, r5, r6 = unpacked('<BI4dddddd', text, quota * 53 - 43)
        local till, a, b, birth, given = 0, 0, 0, 0, 0
        if quota > 1 then cost = unpacked('<d', orders, place + quota * 8 + 6) end
        if raw then
          -- A comparison with NaN is false.
          if quota == 1 then
            local written, begun
            written, begun, till, a, b, birth, given = unpacked('<ddddddd', raw, from)
            from = from + 56
            if begun >= since and written - now <= STEP then since = begun else usual = false end
          elseif from + 39 <= #raw then
            till, a, b, birth, given = unpacked('<ddddd', raw, from)
            from = from + 40
          else
            usual = false
          end
          if not (usual and till >= 0 and till <= now + HORIZON and a >= 0 and b >= 0 and birth >= 0 and given >= 0) then
            usual = false
            break
          end
        end
        local at, start, used, counted, previous, closed = now, now, 0, 0, 0, 0
        local capacity, per_unit, ceiling, undelayed = 0, 1, 0, -1
        local low, base, newest, oldest
        if kind == LOG then
          low, base, newest, oldest = 0, 0, 0, 0
          if mode == LEASE or raw and (b % 1 > 0 or from + b * 16 > #raw + 1) then
            usual = false
            break
          end
          local high = 0
          if b > 0 and not (unpacked('<d', raw, from) + r2 > now) then high = b end
          while low < high do
            local middle = (low + high) / 2
            middle = middle - middle % 1
            if unpacked('<d', raw, from + middle * 16) + r2 <= now then low = middle + 1 else high = middle end
          end
          lapsed = lapsed or low > 0
        elseif kind >= NEWCOMERS then
          -- Of newcomers that start with less than a burst there is more to know.
          usual = false
          break
        end
        local found_till, found_a, found_b = till, a, b
