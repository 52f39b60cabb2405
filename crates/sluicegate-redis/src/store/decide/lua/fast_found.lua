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
