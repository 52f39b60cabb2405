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
  for _, other in ipairs(cell.twins or {}) do
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

