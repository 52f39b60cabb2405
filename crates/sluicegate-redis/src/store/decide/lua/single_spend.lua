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
