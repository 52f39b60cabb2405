-- The short way: a value that holds the asker's own group and nothing else, or nothing. All of it is one flat loop: making
-- functions and tables is most of what a script costs. What is out of the ordinary goes the long way, with all of its request.
local key, at, count, slow = 1, 9, #KEYS, nil
while key <= count do
  local first, began, start = key, at, size
  local granted, usual, counts, last, writes = true, true, false, 0, 0
  local names, values, expiries, name, value, expiry, raw
  size = size + 1
  reply[size] = 0
  repeat
    local mode, which, way, extra, since, cost
    mode, last, which, way, extra, since, cost = unpacked('<BBBBHdd', orders, at)
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
        if quota > 1 then cost = unpacked('<d', orders, at + quota * 8 + 6) end
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
        local now_till, now_a, now_b, fits, found, opens, kept, entry, adds = 0, 0, 0, true, till, 0, nil, '', false
        if kind == 1 then
          -- Unit, ticks, spacing, burst, ceiling, undelayed.
          local start, level = now - now % r1, 0
          if till > start then
            level = (till - start) / r1
            level = (level - level % 1) * r2 - a
            if level < 0 then level = 0 end
          end
          local after = level + cost * r3
          if level >= NEVER then
            usual = false
          elseif mode == CHARGE then
            if after > r5 then after = level > r5 and level or r5 end
          elseif mode == LEASE then
            -- A queue is not leased.
            if r6 >= 0 then usual = false end
            if cost > r4 or after > r4 * r3 then
              cost = level < r4 * r3 and (r4 * r3 - level) / r3 or 0
              cost = cost - cost % 1
              after, fits = level + cost * r3, quotas == 1
            end
          elseif cost > r4 or after > r4 * r3 then
            fits = false
          elseif level > r6 and r6 >= 0 and mode ~= PEEK then
            usual = false
          end
          adds = after > level
          if adds then
            local units = after / r2
            units = units - units % 1
            if units * r2 < after then units = units + 1 end
            now_till, now_a = start + units * r1, units * r2 - after
          end
          -- Nothing that is given back lowers the bucket below the end of a lease.
          if mode == LEASE and cost > 0 then
            floors = (floors or pack('<dB', 0, 0)) .. pack('<ddB', now_a, now_till, quota + 127)
          end
        elseif kind == 2 then
          -- Limit, period, burst, ceiling, aligned.
          local start, used = now, 0
          if till > now then
            local borders = a / r1
            if borders % 1 > 0 then borders = borders - borders % 1 + 1 end
            start, used = till - borders * r2, a
            if now >= start + r2 then
              local passed = (now - start) / r2
              passed = passed - passed % 1
              start, used = start + passed * r2, a - passed * r1
              if used < 0 then used = 0 end
            end
            if b > 0 then usual = false end
          elseif r5 == 1 then
            start = now - now % r2
          end
          local after = used + cost
          if mode == CHARGE then
            if after > r4 then after = used > r4 and used or r4 end
          elseif after > r3 and mode == LEASE then
            cost = used < r3 and r3 - used or 0
            after, fits = used + cost, quotas == 1
          elseif after > r3 then
            fits = false
          end
          adds = after > used
          if adds then
            local borders = after / r1
            if borders % 1 > 0 then borders = borders - borders % 1 + 1 end
            now_till, now_a = start + borders * r2, after
          end
        elseif kind == 3 then
          -- Limit, period, unit, ceiling, whether shares are rounded up.
          local start, previous, current = now - now % r2, 0, 0
          if till > now then
            local stored = till - till % r2 - 2 * r2
            if start > stored then previous = b else start, previous, current = stored, a, b end
            if b >= CLOSED or stored < 0 then usual = false end
          end
          local after = current + cost
          if mode == CHARGE then
            if after > r4 then after = current > r4 and current or r4 end
          else
            local counted = after
            if previous > 0 then
              local left = r2 / r3
              local weight = left
              if now > start then
                local elapsed = (now - start) / r3
                weight = left - elapsed + elapsed % 1
              end
              if weight > 0 then
                weight = previous * weight / left
                counted = counted + (weight - weight % 1)
                if r5 == 1 and weight % 1 > 0 then counted = counted + 1 end
              end
            end
            if counted > r1 and mode == LEASE then
              counted = counted - cost
              cost = counted < r1 and r1 - counted or 0
              after, fits = current + cost, quotas == 1
            elseif counted > r1 then
              fits = false
            end
          end
          adds = after > current
          if adds then now_till, now_a, now_b = start + 2 * r2, previous, after end
        elseif kind > 4 then
          -- Of newcomers that start with less than a burst there is more to know.
          usual = false
          break
        else
          -- Limit, period, ceiling, part. The numbers are the running sum before the first entry and their number, and till is a
          -- period after the last one.
          local length, base, low, high = b * 16, a, 0, 0
          if mode == LEASE or raw and (b % 1 > 0 or from + length > #raw + 1) then
            usual = false
            break
          end
          if b > 0 and not (unpacked('<d', raw, from) + r2 > now) then high = b end
          while low < high do
            local middle = (low + high) / 2
            middle = middle - middle % 1
            if unpacked('<d', raw, from + middle * 16) + r2 <= now then low = middle + 1 else high = middle end
          end
          if low > 0 then base, lapsed = unpacked('<d', raw, from + low * 16 - 8), true end
          local left, sum, newest, oldest = b - low, 0, 0, 0
          if left > 0 then
            local total
            newest, total = unpacked('<dd', raw, from + length - 16)
            sum, oldest = total - base, unpacked('<d', raw, from + low * 16)
          else
            base, till = 0, 0
          end
          if not (sum >= 0 and sum <= NEVER and oldest >= 0 and oldest <= newest and newest <= now + HORIZON
            and left < 2000) then
            usual = false
            break
          end
          found, a, b, adds = newest, sum, oldest, true
          local after = sum + cost
          if after > r1 then
            fits = false
            -- Of a debt there is more to say than these numbers do.
            if mode == CHARGE then usual = false end
            local excess, least = after - r1 + base, 0
            high = left - 1
            while least < high do
              local middle = (least + high) / 2
              middle = middle - middle % 1
              if unpacked('<d', raw, from + (low + middle) * 16 + 8) < excess then least = middle + 1 else high = middle end
            end
            if left > 0 then opens = unpacked('<d', raw, from + (low + least) * 16) + r2 end
            if not (opens >= 0 and opens <= NEVER) then usual = false end
          elseif after > 0 then
            local moment = newest < now and now or newest
            if cost == 0 then
              moment, kept = newest, sub(raw, from + low * 16, from + length - 1)
            else
              -- What comes in the part of the last entry joins it.
              if left == 0 or newest < moment - moment % r4 then left = left + 1 end
              entry = pack('<dd', moment, base + after)
              kept = left > 1 and sub(raw, from + low * 16, from + (low + left - 1) * 16 - 1)
            end
            now_till, now_a, now_b = moment + r2, base, left
          end
          from = from + length
        end
        reply[size + 1], reply[size + 2], reply[size + 3] = found, a, b
        reply[size + 4], reply[size + 5], reply[size + 6] = opens, birth, given
        size = size + 6
        if not fits then
          -- Of several quotas, a lease takes what the least of them has: the long way.
          if mode == RESERVE or mode == LEASE and granted then usual = false end
          granted = false
        elseif granted and mode ~= PEEK then
          if not adds then
            -- What spends nothing changes nothing: the clock may go back to when it was not at rest.
            now_till, now_a, now_b = till, a, b
          elseif till <= now then
            birth, given = now, 0
          elseif birth > now and way % 16 < 8 then
            -- The clock went back a little; without an account, what was spent before the birth was never spent.
            birth = now
          end
          if kept then
            states = (states or text .. pack('<dd', now, since)) .. pack('<ddddd', now_till, now_a, now_b, birth, given)
              .. kept .. entry
          elseif quota == 1 then
            states = text .. pack('<ddddddd', now, since, now_till, now_a, now_b, birth, given) .. entry
          else
            states = states .. pack('<ddddd', now_till, now_a, now_b, birth, given) .. entry
          end
          if now_till > till_last then till_last = now_till end
          if cost > 0 then spends = true end
        end
      end
      if raw and from ~= #raw + 1 then
        -- Behind the states stand floors of leases, which are carried along, or what is out of the ordinary.
        if from + 25 > #raw or (#raw - from - 8) % 17 > 0 or byte(raw, from + 8) > 0 then usual = false end
        for mark = from + 25, usual and #raw or 0, 17 do
          if byte(raw, mark) < 128 then usual = false end
        end
        states = spends and not floors and states .. sub(raw, from) or states
      end
      if mode == LEASE then
        for place = size + 1, size + quotas * 2 do reply[place] = 0 end
        for floor = from + 9, usual and raw and #raw or 0, 17 do
          local a, ends, number = unpacked('<ddB', raw, floor)
          if not (a >= 0 and a % 1 == 0 and ends >= 0 and ends <= now + HORIZON) then
            usual = false
          elseif ends > now and number <= quotas + 127 then
            reply[size + number * 2 - 255], reply[size + number * 2 - 254] = ends, a
          end
        end
        size = size + quotas * 2
        if floors and spends then states = states .. floors end
      end
      -- What has lapsed is forgotten, whatever becomes of the request.
      if lapsed and (last == 0 or not granted or not spends) then usual = false end
    end
    at = at + 14 + quotas * 8 + extra
    if spends and granted and usual then
      if value and name ~= KEYS[key] then
        names, values, expiries = names or {}, values or {}, expiries or {}
        writes = writes + 1
        names[writes], values[writes], expiries[writes] = name, value, expiry
      end
      expiry = (till_last - now) / 1000
      if expiry % 1 > 0 then expiry = expiry - expiry % 1 + 1 end
      name, value, expiry = KEYS[key], states, expiry + slack
    end
    key = key + 1
  until last == 1
  if counts and not granted then usual = false end
  if not usual then
    size = start
    -- What the long way is made of; a call that does not need it makes nothing of it.
    slow = slow or (function()

