-- States of two or three numbers, in one string of doubles: till, how far ahead it was when written, a, and, but for GCRA,
-- b and closed. Not as text: reading and writing decimals was a third of what a decision cost.
local strings = {}

function strings.save(cell, s)
  -- An injected clock may go back to when the state was not at rest.
  if s.till > now - slack * 1000 then
    local ahead = max(s.till - now, 0)
    local value
    if cell.rule.is_short then
      value = struct.pack('<ddd', s.till, ahead, s.a)
    else
      value = struct.pack('<ddddd', s.till, ahead, s.a, s.b, s.closed)
    end
    redis.call('SET', cell.key, value, 'PX', ceil_div(ahead, 1000) + slack)
  elseif cell.found then
    redis.call('DEL', cell.key)
  end
end

-- A comparison with NaN is false: what is not a number is not whole.
local function is_whole(number, most)
  return number >= 0 and number <= most and number % 1 == 0
end

function strings.load(cell)
  local s = { till = 0, a = 0, b = 0, closed = 0 }
  local raw = redis.pcall('GET', cell.key)
  cell.found = raw and true or false
  if type(raw) == 'string' and #raw == (cell.rule.is_short and 24 or 40) then
    local till, ahead, a = struct.unpack('<ddd', raw)
    local b, closed = 0, 0
    if #raw == 40 then b, closed = struct.unpack('<dd', raw, 25) end
    if is_whole(till, now + HORIZON) and is_whole(ahead, till) and is_whole(a, NEVER) and is_whole(b, NEVER)
      and is_whole(closed, 1) then
      s = { till = till, a = a, b = b, closed = closed }
      local step = till - ahead - now
      if step > STEP then
        -- Written at once, whatever is asked: from here on time passes for it again.
        cell.rule.set_back(cell.r, s, step)
        strings.save(cell, s)
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
  cell.s = s
  -- Asks for the same bucket see each other.
  for _, other in ipairs(cell.twins or {}) do other.s = s end
  strings.save(cell, s)
end

function strings.remaining(cell)
  return cell.rule.remaining(cell.r, cell.s, now)
end

function strings.reset_after(cell)
  return cell.rule.reset_after(cell.r, cell.s, now)
end

