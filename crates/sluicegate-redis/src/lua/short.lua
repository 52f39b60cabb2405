-- sluicegate 1, the commonest calls: buckets of GCRA, the greedy token bucket and the leaky bucket without a queue, that
-- are spent from, charged or looked at. The states are those of the long script, and both may serve the same key.
--
-- It is the same rule as in gcra.lua, written out: a call of the long script costs 14 us of Redis' CPU, of which the making of
-- its functions and tables is most, and a call of this one 6; GET and SET alone, in a script, are 3.6 (Redis 7.0, one bucket).
--
-- What it replies is the state that it found; what that means for the request, whose part it was to decide the same, is
-- reckoned by sluicegate_core itself. What is out of the ordinary (a value that is not ours, a clock that was set back) it
-- leaves untouched, with all buckets of that request, and says so: the long script knows what to do.
--
-- ARGV[1], packed doubles: the time or 0 for the server's; then per bucket what has to fit, what is spent, the room, the
-- ceiling, the parts per time unit, the time unit, and the number of the last bucket of its request. Requests are decided
-- one after the other, each for itself.
-- Reply, packed doubles: the time, then per bucket till (or -1) and the parts before it.

local call, pcall, pack, unpacked = redis.call, redis.pcall, struct.pack, struct.unpack
local orders = ARGV[1]
local now, slack = unpacked('<d', orders), 60000
if now == 0 then
  local time = call('TIME')
  now, slack = time[1] * 1000000 + time[2], 0
end
local count, first, found, levels = #KEYS, 1, {}, {}
while first <= count do
  local granted, usual, last, i = true, true, first, first
  local need, spent, room, ceiling, ticks, unit
  repeat
    need, spent, room, ceiling, ticks, unit, last = unpacked('<ddddddd', orders, i * 56 - 47)
    local till, under, level, raw = 0, 0, 0, pcall('GET', KEYS[i])
    if raw then
      local ahead = -1
      if #raw == 24 then till, ahead, under = unpacked('<ddd', raw) end
      -- A comparison with NaN is false.
      if ahead >= 0 and ahead <= till and till <= now + 946080000000000 and till - ahead - now <= 10000000
        and under >= 0 and under <= 9007199254740991 and till % 1 == 0 and ahead % 1 == 0 and under % 1 == 0 then
        local start = now - now % unit
        if till > start then
          level = (till - start) / unit
          level = (level - level % 1) * ticks - under
          if level > ceiling then level = ceiling elseif level < 0 then level = 0 end
        end
      else
        usual = false
      end
    end
    if level + need > room then granted = false end
    found[i * 2 - 1], found[i * 2], levels[i] = till, under, level
    i = i + 1
  until i > last
  if not usual then
    for j = first, last do found[j * 2 - 1] = -1 end
  elseif granted then
    for j = first, last do
      if last > first then need, spent, room, ceiling, ticks, unit = unpacked('<dddddd', orders, j * 56 - 47) end
      if spent > 0 then
        local level = levels[j] + spent
        if level > ceiling then level = ceiling end
        local units = level / ticks
        units = units - units % 1
        if units * ticks < level then units = units + 1 end
        local till = now - now % unit + units * unit
        local px = (till - now) / 1000
        if px % 1 > 0 then px = px - px % 1 + 1 end
        call('SET', KEYS[j], pack('<ddd', till, till - now, units * ticks - level), 'PX', px + slack)
      end
    end
  end
  first = last + 1
end
if count == 1 then return pack('<ddd', now, found[1], found[2]) end
return pack('<' .. string.rep('d', count * 2 + 1), now, unpack(found))
