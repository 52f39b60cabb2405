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
