-- sluicegate 1: decides all asks of one request together. The rules are those of sluicegate_core::algorithm, line by
-- line: the same traces must give the same decisions. All numbers are integers below 2^53, exact in a double; none
-- passes through tostring or .. (which keep 14 digits), only through %.0f.
--
-- ARGV: the time in microseconds, or '' for the server's; then 12 values per bucket:
--   mode, cost, longest wait (or when it was spent), rule, and eight numbers of the rule.
-- KEYS: one per bucket; a second one for the sum of a sliding log.
-- Reply: the time, the common delay, then per bucket:
--   passed, remaining, reset after, available after, never; all waits in microseconds.

local NEVER = 9007199254740991
local HORIZON = 946080000000000 -- no honest state reaches further ahead: thirty years
local STEP = 10000000 -- a clock that went back by more than this was set; what jitters adds up until the next write
local floor, max, min = math.floor, math.max, math.min
local SPEND, PEEK, RESERVE, REFUND, CHARGE, RESET = 0, 1, 2, 3, 4, 5

local now
local slack = 0 -- an injected clock and the server's, by which keys expire, go at different speeds
if ARGV[1] == '' then
  local time = redis.call('TIME') -- read once: it is not frozen inside a script before Redis 7.2
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
else
  now = tonumber(ARGV[1])
  slack = 60000
end

-- Exact below 2^53: a quotient that is not whole differs from every whole number by more than its rounding. Adding b - 1
-- first would not be.
local function ceil_div(a, b)
  return math.ceil(a / b)
end

-- GCRA, greedy token bucket, leaky bucket. State: s.till, and s.a parts that the arrival time lies before it.
local gcra = {}

function gcra.level(r, s, at)
  local start = at - at % r.unit
  if s.till <= start then return 0 end
  return min(max(floor((s.till - start) / r.unit) * r.ticks - s.a, 0), r.ceiling)
end

function gcra.drain(r, level)
  return ceil_div(level, r.ticks) * r.unit
end

function gcra.state(r, level, at)
  if level <= 0 then return { till = 0, a = 0, b = 0, closed = 0 } end
  local units = ceil_div(level, r.ticks)
  return { till = at - at % r.unit + units * r.unit, a = units * r.ticks - level, b = 0, closed = 0 }
end

function gcra.slot(r, s, at, cost)
  if cost > r.burst then return NEVER, NEVER end
  local level, start = gcra.level(r, s, at), at - at % r.unit
  local excess = level - (r.burst - cost) * r.spacing
  local opens = at
  if excess > 0 then opens = start + gcra.drain(r, excess) end
  local departs = opens
  if r.undelayed >= 0 and level > r.undelayed then
    departs = max(opens, start + gcra.drain(r, level - r.undelayed))
  end
  return opens, departs
end

function gcra.spend(r, s, at, cost)
  if r.undelayed >= 0 then
    local _, departs = gcra.slot(r, s, now, cost)
    if at <= departs then at = now end
  end
  return gcra.state(r, min(gcra.level(r, s, at) + cost * r.spacing, r.ceiling), at)
end

function gcra.refund(r, s, at, ago, cost)
  local counts = max(cost * r.spacing - ceil_div(ago, r.unit) * r.ticks, 0)
  return gcra.state(r, gcra.level(r, s, at) - counts, at)
end

function gcra.remaining(r, s, at)
  return floor(max(r.burst * r.spacing - gcra.level(r, s, at), 0) / r.spacing)
end

function gcra.reset_after(r, s, at)
  return max(s.till - at, 0)
end

function gcra.set_back(r, s, step)
  s.till = s.till - step
end

-- Fixed window, interval token bucket. State: s.till, and s.a units used; s.closed if a later window was given out.
local window = {}

function window.borders(r, used)
  return ceil_div(used, r.limit)
end

function window.open(r, s, at)
  if s.till <= at then
    local offset = 0
    if r.aligned == 1 then offset = at % r.period end
    return { start = at - offset, used = 0, closed = 0 }
  end
  -- Under a limit that is lower than when it was written, a count may reach back to before the clock began.
  local count = min(s.a, floor(s.till / r.period) * r.limit)
  local start = s.till - window.borders(r, count) * r.period
  local passed = floor(max(at - start, 0) / r.period)
  return { start = start + passed * r.period, used = max(count - passed * r.limit, 0), closed = s.closed }
end

function window.state(r, w)
  if w.used <= 0 then
    if w.closed == 1 then return { till = w.start, a = 0, b = 0, closed = 1 } end
    return { till = 0, a = 0, b = 0, closed = 0 }
  end
  return { till = w.start + window.borders(r, w.used) * r.period, a = w.used, b = 0, closed = w.closed }
end

local function is_over(w, at)
  return w.closed == 1 and at < w.start
end

function window.slot(r, s, at, cost)
  if cost > r.burst then return NEVER, NEVER end
  local w = window.open(r, s, at)
  local excess = w.used + cost - r.burst
  local opens = at
  if excess > 0 then
    opens = w.start + window.borders(r, excess) * r.period
  elseif is_over(w, at) then
    opens = w.start
  end
  return opens, opens
end

function window.spend(r, s, at, cost)
  local w = window.open(r, s, at)
  w.used = min(w.used + cost, r.ceiling)
  w.closed = (at > now or is_over(w, now)) and 1 or 0
  return window.state(r, w)
end

function window.refund(r, s, at, ago, cost)
  local w = window.open(r, s, at)
  if ago > 0 and at - ago < w.start then return s end
  w.used = w.used - cost
  return window.state(r, w)
end

function window.remaining(r, s, at)
  local w = window.open(r, s, at)
  if is_over(w, at) then return 0 end
  return max(r.burst - w.used, 0)
end

window.reset_after = gcra.reset_after

function window.set_back(r, s, step)
  if r.aligned == 1 then step = floor(step / r.period) * r.period end
  s.till = s.till - step
end

-- Sliding counter. State: s.till two periods after the window's start, the previous count s.a and the current s.b.
local counter = {}

function counter.open(r, s, at)
  local index = floor(at / r.period)
  if s.till <= at then return { start = index * r.period, previous = 0, current = 0, closed = 0 } end
  local stored = max(floor(s.till / r.period) - 2, 0)
  if index > stored then
    return { start = index * r.period, previous = s.b, current = 0, closed = s.closed }
  end
  return { start = stored * r.period, previous = s.a, current = s.b, closed = s.closed }
end

function counter.state(r, w)
  if w.previous <= 0 and w.current <= 0 and w.closed == 0 then return { till = 0, a = 0, b = 0, closed = 0 } end
  return { till = w.start + 2 * r.period, a = w.previous, b = w.current, closed = w.closed }
end

function counter.elapsed(r, w, at)
  return floor(max(at - w.start, 0) / r.unit)
end

function counter.counted(r, w, at)
  local units = r.period / r.unit
  return floor(w.previous * max(units - counter.elapsed(r, w, at), 0) / units) + w.current
end

function counter.falls_to(r, previous, target)
  if previous <= target then return 0 end
  local units = r.period / r.unit
  return units - (ceil_div((target + 1) * units, previous) - 1)
end

function counter.sinks_to(r, w, at, target)
  local units = r.period / r.unit
  if w.current <= target then
    local elapsed = counter.falls_to(r, w.previous, target - w.current)
    if elapsed <= counter.elapsed(r, w, at) then
      if is_over(w, at) then return w.start end
      return at
    end
    if elapsed < units then return w.start + elapsed * r.unit end
  end
  return w.start + r.period + min(counter.falls_to(r, w.current, target), units) * r.unit
end

function counter.slot(r, s, at, cost)
  if cost > r.limit then return NEVER, NEVER end
  local opens = counter.sinks_to(r, counter.open(r, s, at), at, r.limit - cost)
  return opens, opens
end

function counter.spend(r, s, at, cost)
  local w = counter.open(r, s, at)
  w.current = min(w.current + cost, r.ceiling)
  w.closed = (at > now or is_over(w, now)) and 1 or 0
  return counter.state(r, w)
end

function counter.refund(r, s, at, ago, cost)
  local w = counter.open(r, s, at)
  local spent, older = at - ago, cost
  if spent >= w.start or ago == 0 then
    older = max(cost - w.current, 0)
    w.current = max(w.current - cost, 0)
  end
  if spent + r.period >= w.start or ago == 0 then w.previous = max(w.previous - older, 0) end
  return counter.state(r, w)
end

function counter.remaining(r, s, at)
  local w = counter.open(r, s, at)
  if is_over(w, at) then return 0 end
  return max(r.limit - counter.counted(r, w, at), 0)
end

function counter.reset_after(r, s, at)
  return counter.sinks_to(r, counter.open(r, s, at), at, 0) - at
end

function counter.set_back(r, s, step)
  s.till = s.till - floor(step / r.period) * r.period
end

-- States of two or three numbers, in one string: till, how far ahead it was when written, a, b, closed.
local strings = {}

function strings.save(cell, s)
  -- An injected clock may go back to when the state was not at rest.
  if s.till > now - slack * 1000 then
    local ahead = max(s.till - now, 0)
    local value = string.format('%.0f %.0f %.0f %.0f %.0f', s.till, ahead, s.a, s.b, s.closed)
    redis.call('SET', cell.key, value, 'PX', string.format('%.0f', ceil_div(ahead, 1000) + slack))
  elseif cell.found then
    redis.call('DEL', cell.key)
  end
end

function strings.load(cell)
  local s = { till = 0, a = 0, b = 0, closed = 0 }
  local raw = redis.pcall('GET', cell.key)
  cell.found = raw and true or false
  if type(raw) == 'string' then
    local till, ahead, a, b, closed = string.match(raw, '^(%d+) (%d+) (%d+) (%d+) ([01])$')
    if till and #raw < 90 then
      till, ahead, a, b = tonumber(till), tonumber(ahead), tonumber(a), tonumber(b)
      if till <= now + HORIZON and ahead <= till and a <= NEVER and b <= NEVER then
        s = { till = till, a = a, b = b, closed = tonumber(closed) }
        local step = till - ahead - now
        if step > STEP then
          -- Written at once, whatever is asked: from here on time passes for it again.
          cell.rule.set_back(cell.r, s, step)
          strings.save(cell, s)
        end
      end
    end
  end
  cell.s = s
end

function strings.slot(cell, cost)
  return cell.rule.slot(cell.r, cell.s, now, cost)
end

function strings.change(cell, at)
  local mode, rule, s = cell.mode, cell.rule, nil
  if mode == SPEND or mode == RESERVE then
    s = rule.spend(cell.r, cell.s, at, cell.cost)
  elseif mode == CHARGE then
    s = rule.spend(cell.r, cell.s, now, cell.cost)
  elseif mode == REFUND then
    s = rule.refund(cell.r, cell.s, now, cell.ago, cell.cost)
  elseif mode == RESET then
    s = { till = 0, a = 0, b = 0, closed = 0 }
  else
    return
  end
  -- Asks for the same bucket see each other.
  for _, other in ipairs(cell.twins) do other.s = s end
  strings.save(cell, s)
end

function strings.remaining(cell)
  return cell.rule.remaining(cell.r, cell.s, now)
end

function strings.reset_after(cell)
  return cell.rule.reset_after(cell.r, cell.s, now)
end

-- Sliding log: a list of 'time cost', oldest first, and beside it 'sum written offset': the sum of the costs, when that was
-- written, and by how much the times in the list are ahead because the clock was set back since.
local log = {}

local function entry(cell, raw)
  local at, cost = string.match(raw or '', '^(%d+) (%d+)$')
  if at then return tonumber(at) - cell.offset, tonumber(cost) end
end

local function written(cell, at, cost)
  return string.format('%.0f %.0f', at + cell.offset, cost)
end

function log.save(cell)
  if cell.sum <= 0 or not cell.last then
    redis.call('DEL', cell.key, cell.meta)
    cell.sum, cell.last, cell.offset = 0, nil, 0
    return
  end
  local px = string.format('%.0f', max(ceil_div(cell.last + cell.r.period - now, 1000), 1) + slack)
  redis.call('SET', cell.meta, string.format('%.0f %.0f %.0f', cell.sum, now, cell.offset), 'PX', px)
  redis.call('PEXPIRE', cell.key, px)
end

function log.load(cell)
  cell.sum, cell.last, cell.offset = 0, nil, 0
  local first = redis.pcall('LINDEX', cell.key, 0)
  if not first then return end
  local meta = redis.pcall('GET', cell.meta)
  local sum, since, offset = string.match(type(meta) == 'string' and meta or '', '^(%d+) (%d+) (%d+)$')
  local is_set_back = sum and tonumber(since) - now > STEP
  if sum then cell.offset = tonumber(offset) + (is_set_back and tonumber(since) - now or 0) end
  local last = type(first) == 'string' and entry(cell, redis.call('LINDEX', cell.key, -1))
  if not sum or not last or last > now + HORIZON or cell.offset > HORIZON or tonumber(sum) > NEVER then
    redis.call('DEL', cell.key, cell.meta)
    cell.offset = 0
    return
  end
  cell.sum, cell.last = tonumber(sum), last
  local over = 0
  while true do
    local at, cost = entry(cell, redis.call('LINDEX', cell.key, 0))
    if not at then
      cell.sum = 0
      break
    end
    if at + cell.r.period > now then break end
    redis.call('LPOP', cell.key)
    cell.sum, over = cell.sum - cost, over + 1
  end
  if over > 0 or cell.sum <= 0 or is_set_back then log.save(cell) end
end

function log.slot(cell, cost)
  if cost > cell.r.limit then return NEVER, NEVER end
  local excess = cell.sum + cost - cell.r.limit
  if excess <= 0 then return now, now end
  local from = 0
  while true do
    local entries = redis.call('LRANGE', cell.key, from, from + 63)
    if #entries == 0 then return now, now end
    for _, raw in ipairs(entries) do
      local at, units = entry(cell, raw)
      excess = excess - (units or 0)
      if excess <= 0 then
        local opens = max(now, at + cell.r.period)
        return opens, opens
      end
    end
    from = from + 64
  end
end

function log.push(cell, at, cost)
  if cost == 0 then return end
  local units = min(cost, 4294967295)
  at = max(at, cell.last or 0)
  if cell.last == at then
    local _, there = entry(cell, redis.call('LINDEX', cell.key, -1))
    local together = min(there + units, 4294967295)
    redis.call('LSET', cell.key, -1, written(cell, at, together))
    cell.sum = cell.sum + together - there
  else
    redis.call('RPUSH', cell.key, written(cell, at, units))
    cell.sum = cell.sum + units
  end
  cell.last = at
  log.save(cell)
end

function log.take_back(cell, cost)
  local latest = NEVER -- turns that have not come yet are among what was spent just now
  if cell.ago > 0 then latest = now - cell.ago end
  local newer, left = {}, cost
  while left > 0 do
    local raw = redis.call('RPOP', cell.key)
    if not raw then break end
    local at, units = entry(cell, raw)
    if at and at > latest then
      newer[#newer + 1] = raw
    elseif at then
      local taken = min(units, left)
      cell.sum, left = cell.sum - taken, left - taken
      if units > taken then
        redis.call('RPUSH', cell.key, written(cell, at, units - taken))
      end
    end
  end
  for i = #newer, 1, -1 do redis.call('RPUSH', cell.key, newer[i]) end
  cell.last = entry(cell, redis.call('LINDEX', cell.key, -1))
  log.save(cell)
end

function log.change(cell, at)
  local mode = cell.mode
  if mode == SPEND or mode == RESERVE then
    log.push(cell, at, cell.cost)
  elseif mode == CHARGE then
    log.push(cell, now, cell.cost)
  elseif mode == REFUND then
    if cell.sum > 0 then log.take_back(cell, cell.cost) end
  elseif mode == RESET then
    cell.sum = 0
    log.save(cell)
  else
    return
  end
  for _, other in ipairs(cell.twins) do
    other.sum, other.last, other.offset = cell.sum, cell.last, cell.offset
  end
end

function log.remaining(cell)
  return max(cell.r.limit - cell.sum, 0)
end

function log.reset_after(cell)
  if cell.sum <= 0 then return 0 end
  return max(cell.last + cell.r.period - now, 0)
end

-- The request.
local cells, by_key = {}, {}
local argument, position = 2, 1
while ARGV[argument] do
  local n = {}
  for i = 0, 11 do n[i] = tonumber(ARGV[argument + i]) end
  local cell = { key = KEYS[position], mode = n[0], cost = n[1], longest = n[2], twins = {}, ahead = 0 }
  local kind = n[3]
  cell.home = strings
  if kind == 1 then
    cell.rule = gcra
    cell.r = { unit = n[4], ticks = n[5], spacing = n[6], burst = n[7], ceiling = n[8], undelayed = n[9] }
    cell.capacity, cell.queues = n[7], n[9] >= 0
  elseif kind == 2 then
    cell.rule = window
    cell.r = { limit = n[4], period = n[5], burst = n[6], ceiling = n[7], aligned = n[8] }
    cell.capacity = n[6]
  elseif kind == 3 then
    cell.rule = counter
    cell.r = { limit = n[4], period = n[5], unit = n[6], ceiling = n[7] }
    cell.capacity = n[4]
  else
    cell.home = log
    cell.r = { limit = n[4], period = n[5] }
    cell.capacity = n[4]
    position = position + 1
    cell.meta = KEYS[position]
  end
  cell.spends = cell.mode == SPEND or cell.mode == RESERVE
  cell.ago = 0
  if cell.mode == REFUND and cell.longest > 0 then cell.ago = max(now - cell.longest, 0) end
  local twins = by_key[cell.key] or {}
  by_key[cell.key] = twins
  for _, twin in ipairs(twins) do
    if twin.spends and cell.spends then cell.ahead = cell.ahead + twin.cost end
  end
  twins[#twins + 1] = cell
  cell.twins = twins
  cells[#cells + 1] = cell
  argument, position = argument + 12, position + 1
end

local granted, delay = true, 0
for _, cell in ipairs(cells) do
  cell.home.load(cell)
  local opens, departs = cell.home.slot(cell, cell.cost + cell.ahead)
  local turn = opens -- the earliest moment at which the ask would be granted
  if cell.mode == RESERVE then
    turn = departs - cell.longest
    if cell.queues then turn = max(turn, opens) end
  end
  cell.never = opens == NEVER
  cell.turn = turn
  cell.passed = cell.mode >= REFUND or (not cell.never and turn <= now)
  if not cell.passed then granted = false end
  if cell.spends then delay = max(delay, departs - now) end
end
if granted then
  for _, cell in ipairs(cells) do cell.home.change(cell, now + delay) end
end
local reply = { now, granted and delay or 0 }
for _, cell in ipairs(cells) do
  local remaining = cell.home.remaining(cell)
  local available = 0
  if not cell.passed then
    if not cell.never then available = cell.turn - now end
  elseif remaining < cell.capacity then
    available = cell.home.slot(cell, remaining + 1) - now
  end
  reply[#reply + 1] = cell.passed and 1 or 0
  reply[#reply + 1] = remaining
  reply[#reply + 1] = cell.home.reset_after(cell)
  reply[#reply + 1] = max(available, 0)
  reply[#reply + 1] = cell.never and 1 or 0
end
return reply
