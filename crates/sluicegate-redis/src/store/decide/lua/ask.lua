-- An ask: its key, group and cost, and whether it passes.
-- The cost for a quota of any group: quotas of another text may differ, and pay the highest cost.
local function cost_of(ask, group, index)
  return #group == #ask and ask[index] or ask.most
end

-- The units that are marked.
local function marked_units(value)
  local units = 0
  for _, note in ipairs(value.notes) do
    if note.kind == MARK then units = units + note.units end
  end
  return units
end

-- Rounded up, so that there are few of them at a time.
local function marked_until(at, mark)
  local step = max(floor(mark / 8), 1)
  return ceil_div(at + mark, step) * step
end

local function ask_at(key, at, values)
  local mode, _, which, way, extra, since = unpacked('<BBBBHd', orders, at)
  local text, name = ARGV[which + 1], KEYS[key]
  values[name] = values[name] or load(name)
  local ask = { mode = mode % 128, mark = 0, longest = 0, value = values[name], most = 0, departs = now, took = {}, floor = {} }
  if ask.mode >= MODES then error('sluicegate: unknown mode ' .. ask.mode) end
  -- TAKE is a spend of the available units.
  if ask.mode == TAKE then ask.mode, ask.takes = SPEND, true end
  ask.converts, ask.accounts = way % 128 >= 64, way % 16 >= 8
  if ask.converts then
    local is_report = ask.mode == REFUND or ask.mode == RETURN
    ask.group = own_of_key(ask.value, text, since, way % 8, is_report)
  else
    ask.group = own(ask.value, text, since, way % 8, unpacked('<d', ARGV[which], #ARGV[which] - 7))
  end
  if ask.mode ~= PEEK or way % 32 < 16 then ask.value.is_asked = true end
  -- A bucket that has changed its quotas is a new one by its birth, whatever its text.
  ask.is_own = ask.converts or ask.group.text == text
  ask.spends = ask.mode == SPEND or ask.mode == RESERVE
  ask.counts = ask.spends and way % 64 >= 32
  at = at + 14
  for quota = 1, byte(text) % 128 do
    ask[quota] = unpacked('<d', orders, at)
    ask.most, at = max(ask.most, ask[quota]), at + 8
  end
  if extra > 0 then
    ask.longest, ask.spent, ask.flags, ask.mark = unpacked('<ddBd', orders, at)
    ask.is_exact, ask.is_final = ask.flags % 2 == 1, ask.flags >= 4
    if extra > 25 then ask.traces = at + 25 end
    if ask.flags % 4 >= 2 then ask.floors = at + 25 + #ask * 80 end
  end
  return ask, at + extra
end

-- The units that an ask spent from a quota, if it sent them.
local function spent_of(ask, quota, index)
  if not ask.traces or not ask.is_own then return nil end
  local cost, found, given, birth, t1, a1, b1, t2, a2, b2 =
    unpacked('<dddddddddd', orders, ask.traces + index * 80 - 80)
  -- An entry of a log is found by its moment, in any log that was there before it.
  local may_be_later = quota.rule == log or not ask.accounts
  return { at = ask.spent, cost = cost, give = min(ask[index], cost), before = max(found - max(quota.given - given, 0), 0),
    is_known = quota.s.till > now and (birth == quota.birth or (birth > quota.birth and may_be_later)),
    found = { till = t1, a = a1, b = b1 }, after = { till = t2, a = a2, b = b2 } }
end

-- The state without a turn that has not started, and the units given back; nil if a later turn may depend on it.
local function without(quota, turn)
  if not turn or not turn.is_known or turn.at <= now or turn.cost == 0 then return nil end
  local s, given = quota.rule.take_back(quota.r, quota.s, turn)
  if s and s.till <= now then s = REST end
  return s, given
end

local function leave(quota, turn)
  local s, given = without(quota, turn)
  if s then quota.s, quota.given = s, quota.given + given end
end

local function can_return(ask, quota, index)
  if ask[index] == 0 then return true end
  return without(quota, spent_of(ask, quota, index)) ~= nil
end

-- The units that earlier spends of the request take from a quota of the ask's bucket, if they have not been tried out.
-- After a wait, an ask that is cut could take its whole cost; an ask without a cost passes beside it.
local function spent_ahead(asks, number, index)
  local ask, ahead = asks[number], 0
  local is_whole = cost_of(ask, ask.group, index) > 0
  for earlier = 1, number - 1 do
    local other = asks[earlier]
    local is_twin = other.value == ask.value
    if is_twin and other.mode == RESET then ahead = 0 end
    if is_twin and other.spends and not other.tried then
      ahead = ahead + cost_of(is_whole and other.whole or other, ask.group, index)
    end
  end
  return ahead
end

-- Cuts the cost of an ask to the units that all of its quotas have left, but at least one unit.
local function grant(asks, number)
  local ask, left = asks[number], asks[number].most
  ask.whole = ask.whole or { most = left, unpack(ask) }
  for index, quota in ipairs(ask.group) do
    left = min(left, remaining(quota.r, quota.s) - spent_ahead(asks, number, index))
  end
  for index = 1, #ask do ask[index] = min(ask[index], max(left, 1)) end
  ask.most = min(ask.most, max(left, 1))
end

-- Whether an ask is granted, quota by quota; reports always are. Spends of one bucket are one
-- spend of all their units.
local function judge(asks, number, lines)
  local ask, granted = asks[number], true
  local marked = marked_units(ask.value)
  ask.departs = now
  if ask.takes then grant(asks, number) end
  for index, quota in ipairs(ask.group) do
    local cost = cost_of(ask, ask.group, index)
    local ahead = ask.mode >= CHARGE and 0 or spent_ahead(asks, number, index)
    local opens, departs = quota.rule.slot(quota.r, quota.s, now, cost + ahead)
    local turn = opens -- the earliest moment at which the ask would be granted
    if ask.mode == RESERVE then
      turn = departs - ask.longest
      if quota.r.queues then turn = max(turn, opens) end
    end
    local passed, never = turn <= now, opens == NEVER
    -- A turn that is decades ahead could not be stored.
    if never or departs > now + HORIZON * 2 / 3 then passed = false end
    if ask.mode >= CHARGE then passed, never = true, false end
    if ask.mode == RETURN then passed, turn = can_return(ask, quota, index), now end
    granted = granted and passed
    local busy = passed and marked > 0 -- whether units that others may give back in a moment matter
    if not passed and not never and marked > 0 then
      local opens_then, leaves = quota.rule.slot(quota.r, quota.s, now, cost + ahead - marked)
      busy = opens_then <= now and (ask.mode ~= RESERVE or leaves - ask.longest <= now)
    end
    if ask.spends then ask.departs = max(ask.departs, departs) end
    lines[#lines + 1] = { ask = ask, quota = quota, cost = cost, passed = passed, busy = busy, never = never,
      turn = turn, departs = departs, index = index }
  end
  return granted
end

