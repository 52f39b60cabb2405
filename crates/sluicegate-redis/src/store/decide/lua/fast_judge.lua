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
