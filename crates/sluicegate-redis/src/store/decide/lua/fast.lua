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
          --> read_state
          if not usual or not till or till > now + HORIZON then
            usual = false
            break
          end
          if till > found_last then found_last = till end
        end
        local at, start, used, counted, previous, closed = now, now, 0, 0, 0, 0
        local capacity, per_unit, ceiling, undelayed = 0, 1, 0, -1
        local low, base, newest, oldest
        if kind == LOG then
          low, base, newest, oldest = 0, 0, 0, 0
          if mode == LEASE or raw and from + b * 14 > #raw + 1 then
            usual = false
            break
          end
          local high = 0
          if b > 0 and unpacked('<I7', raw, from) + r2 <= now then high = b end
          while low < high do
            local middle = (low + high) / 2
            middle = middle - middle % 1
            if unpacked('<I7', raw, from + middle * 14) + r2 <= now then low = middle + 1 else high = middle end
          end
          lapsed = lapsed or low > 0
        elseif kind >= NEWCOMERS then
          -- Newcomers that start with less than a burst need more data.
          usual = false
          break
        end
        local found_till, found_a, found_b = till, a, b
        --> open: gcra window counter log
        local adds, fits, opens = cost * per_unit, true, 0
        if closed > 0 or not (used < NEVER) then usual = false end
        if mode == CHARGE then
          if used + adds > ceiling then adds = used < ceiling and ceiling - used or 0 end
        elseif counted + adds > capacity then
          fits, opens = false, 1
          if mode == LEASE then
            -- It passes with the available units.
            cost = counted < capacity and (capacity - counted) / per_unit or 0
            cost = cost - cost % 1
            adds, fits, opens = cost * per_unit, quotas == 1, 0
          end
        end
        -- A queue is not leased, and may delay admitted requests.
        if undelayed >= 0 and (mode == LEASE or fits and used > undelayed and mode ~= PEEK and mode ~= CHARGE) then usual = false end
        if kind == LOG then
          if not (used >= 0 and used <= NEVER and oldest <= newest and newest <= now + HORIZON) then
            usual = false
            break
          end
          found_till, found_a, found_b = newest, used, oldest
          -- A debt needs more numbers than these.
          if mode == CHARGE and used + adds > capacity then usual = false end
          -- Lapsed entries are removed.
          if low > 0 and adds == 0 then usual = false end
          if not fits and b > low then
            local excess, least, high = used + adds - capacity + base, low, b - 1
            while least < high do
              local middle = (least + high) / 2
              middle = middle - middle % 1
              if unpacked('<I7', raw, from + middle * 14 + 7) < excess then least = middle + 1 else high = middle end
            end
            opens = unpacked('<I7', raw, from + least * 14) + r2
            if not (opens >= 1 and opens <= NEVER) then usual = false end
          end
        end
        reply[size + 1], reply[size + 2], reply[size + 3] = found_till, found_a, found_b
        reply[size + 4], reply[size + 5], reply[size + 6] = opens, birth, given
        size = size + 6
        if not fits then
          -- A lease of several quotas takes the fewest units left in any of them: the long way.
          if mode == RESERVE or mode == LEASE and granted then usual = false end
          granted = false
        elseif granted and mode ~= PEEK then
          local new_till, new_a, new_b, kept, entry, state = 0, 0, 0, '', '', nil
          if adds == 0 then
            -- Without a spend nothing changes: the clock may go back to a time when the bucket was not at rest.
            new_till, new_a, new_b = till, a, b
            if kind == LOG and raw then kept = sub(raw, from, from + b * 14 - 1) end
          else
            used = used + adds
            if till <= now then
              birth, given = now, 0
            elseif birth > now and way % 16 < 8 then
              -- The clock went back a little; without an account, units spent before the birth were never spent.
              birth = now
            end
            --> close: gcra window counter log
            -- A refund never lowers a bucket that drains below the end of a lease.
            if mode == LEASE and kind == GCRA then
              floors = (floors or '\0') .. pack('<I7I7B', new_a, new_till, quota + 127)
            end
          end
          --> write_state
          states = (states or text .. pack('<I7I7', now, since)) .. state .. kept .. entry
          if new_till > till_last then till_last = new_till end
          if cost > 0 then spends = true end
        end
        if kind == LOG then from = from + b * 14 end
      end
      if usual and raw and from ~= #raw + 1 then
        -- After the states come floors of leases, which are copied, or unusual data.
        if byte(raw, from) > 0 or (#raw - from) % 15 > 0 then usual = false end
        for mark = from + 15, usual and #raw or 0, 15 do
          if byte(raw, mark) < FLOORS then usual = false end
        end
        states = spends and not floors and states .. sub(raw, from) or states
      end
      if mode == LEASE then
        for floor = size + 1, size + quotas * 2 do reply[floor] = 0 end
        for floor = from + 1, usual and raw and #raw or 0, 15 do
          local a, ends, number = unpacked('<I7I7B', raw, floor)
          if ends > now + HORIZON then
            usual = false
          elseif ends > now and number < quotas + FLOORS then
            reply[size + (number - FLOORS) * 2 + 1], reply[size + (number - FLOORS) * 2 + 2] = ends, a
          end
        end
        size = size + quotas * 2
        if floors and spends then states = states .. floors end
      end
      -- Lapsed entries are removed, whatever the outcome of the request.
      if lapsed and (last == 0 or not granted or not spends) then usual = false end
    end
    place = place + 14 + quotas * 8 + extra
    if spends and granted and usual then
      if value and name ~= KEYS[key] then
        names, values, expiries = names or {}, values or {}, expiries or {}
        writes = writes + 1
        names[writes], values[writes], expiries[writes] = name, value, expiry
      end
      local rests = till_last - till_last % SPAN
      if not raw or slack > 0 or found_last - found_last % SPAN ~= rests then
        expiry = (rests + SPAN - now) / 1000
        expiry = expiry - expiry % 1 + 1 + slack
      elseif name ~= KEYS[key] then
        expiry = nil
      end
      name, value = KEYS[key], states
    end
    key = key + 1
  until last == 1
  if counts and not granted then usual = false end
  if late then
    size = begins_at + 1
    reply[size] = 2
  elseif not usual then
    size = begins_at
    -- The functions of the long way; a call that does not need them does not create them.
    slow = slow or (function()
      --> long
    end)()
    slow(first, key - 1, began)
  elseif granted and value then
    for write = 0, writes do
      if write > 0 then name, value, expiry = names[write], values[write], expiries[write] end
      if expiry then call('SET', name, value, 'PX', expiry) else call('SET', name, value, 'KEEPTTL') end
    end
  end
end
if size == 8 then return pack('<dddddddd', unpack(reply)) end
return pack('<' .. string.rep('d', size), unpack(reply, 1, size))
