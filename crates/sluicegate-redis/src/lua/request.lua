-- The request. An algorithm that none of its buckets has is not part of the script, and not touched here.
local cells, by_key = {}, {}
local argument, position = 2, 1
while ARGV[argument] do
  local n = {}
  for i = 0, 11 do n[i] = tonumber(ARGV[argument + i]) end
  local cell = { key = KEYS[position], mode = n[0], cost = n[1], longest = n[2], twins = {}, ahead = 0 }
  local kind = n[3]
  cell.home = kind == 4 and log or strings
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
