-- The request. An algorithm that none of its buckets has is not part of the script, and not touched here.
local cells, by_key = {}, nil
local orders, position = ARGV[2], 1
for at = 1, #orders, 80 do
  local mode, cost, longest, kind, a, b, c, d, e, f = struct.unpack('<dddddddddd', orders, at)
  local home, rule, r, capacity, queues, meta = kind ~= 4 and strings, nil, nil, a, false, nil
  if kind == 1 then
    rule, capacity, queues = gcra, d, f >= 0
    r = { unit = a, ticks = b, spacing = c, burst = d, ceiling = e, undelayed = f }
  elseif kind == 2 then
    rule, capacity = window, c
    r = { limit = a, period = b, burst = c, ceiling = d, aligned = e }
  elseif kind == 3 then
    rule = counter
    r = { limit = a, period = b, unit = c, ceiling = d }
  else
    home, meta = log, KEYS[position + 1]
    r = { limit = a, period = b }
  end
  local ago = 0
  if mode == REFUND and longest > 0 then ago = max(now - longest, 0) end
  -- All fields at once: a table that grows is copied every time.
  local cell = {
    key = KEYS[position], meta = meta, mode = mode, cost = cost, longest = longest, home = home, rule = rule, r = r,
    capacity = capacity, queues = queues, spends = mode == SPEND or mode == RESERVE, ago = ago, ahead = 0,
    twins = false, s = false, found = false, sum = 0, last = nil, offset = 0, never = false, turn = 0, passed = false,
  }
  if #orders > 80 then
    by_key = by_key or {}
    local twins = by_key[cell.key] or {}
    by_key[cell.key] = twins
    for _, twin in ipairs(twins) do
      if twin.spends and cell.spends then cell.ahead = cell.ahead + twin.cost end
    end
    twins[#twins + 1] = cell
    cell.twins = twins
  end
  cells[#cells + 1] = cell
  position = position + (meta and 2 or 1)
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
local reply, size = { now, granted and delay or 0, 0, 0, 0, 0, 0 }, 2
for _, cell in ipairs(cells) do
  local remaining = cell.home.remaining(cell)
  local available = 0
  if not cell.passed then
    if not cell.never then available = cell.turn - now end
  elseif remaining < cell.capacity then
    available = cell.home.slot(cell, remaining + 1) - now
  end
  reply[size + 1] = cell.passed and 1 or 0
  reply[size + 2] = remaining
  reply[size + 3] = cell.home.reset_after(cell)
  reply[size + 4] = max(available, 0)
  reply[size + 5] = cell.never and 1 or 0
  size = size + 5
end
return reply
