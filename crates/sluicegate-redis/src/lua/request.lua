-- One request, the long way. Reply: 1, the delay; per ask its number of quotas, and per quota whether it passed, whether it
-- never can, its capacity, what remains, until it is at rest, until more is available, what was spent, whether that is held,
-- and the trace: birth, given, what was counted, the state before and after.
local MOMENTS = 100 -- the most at which units held of a key are due

-- The cost for a quota of any group: those of another text may be other quotas, and pay the highest.
local function cost_of(ask, group, index)
  return #group == #ask and ask[index] or ask.most
end

-- The units that are held, or marked.
local function held_of(value, marked)
  local units = 0
  for _, hold in ipairs(value.held) do
    if hold.marked == marked then units = units + hold.units end
  end
  return units
end

local function held_until(value, till, marked)
  for _, hold in ipairs(value.held) do
    if hold.till == till and hold.marked == marked then return hold end
  end
end

-- Rounded up, so that there are few of them at a time.
local function marked_until(at, mark)
  local step = max(floor(mark / 8), 1)
  return ceil_div(at + mark, step) * step
end

local function ask_at(key, at, values)
  local mode, _, which, way, extra, since = unpacked('<BBBBHd', orders, at)
  local text, name = ARGV[which], KEYS[key]
  values[name] = values[name] or load(name)
  local ask = { mode = mode % 8, held = false, mark = 0, longest = 0, value = values[name], most = 0, departs = now, took = {} }
  ask.group, ask.accounts = own(ask.value, text, since, way % 8), way >= 8
  ask.is_own = ask.group.text == text
  ask.spends = ask.mode == SPEND or ask.mode == RESERVE
  at = at + 14
  for quota = 1, (#text - 9) / 53 do
    ask[quota] = unpacked('<d', orders, at)
    ask.most, at = max(ask.most, ask[quota]), at + 8
  end
  if extra > 0 then
    ask.longest, ask.spent, ask.flags, ask.mark = unpacked('<ddBd', orders, at)
    ask.held, ask.is_exact = ask.flags % 2 == 1, ask.flags >= 2
    if extra > 25 then ask.traces = at + 25 end
  end
  return ask, at + extra
end

-- When a cost has room beside what is held: all of that counts until it is due, and does not drain before.
local function slot(quota, value, cost, held)
  local rule, r, s, at = quota.rule, quota.r, quota.s, now
  if cost > r.capacity then return NEVER, NEVER end
  for _, hold in ipairs(held > 0 and value.held or {}) do
    if hold.marked == 0 then
      local opens, departs = rule.slot(r, s, at, cost + held)
      if opens < hold.till then return opens, departs end
      -- By then it is spent.
      s = rule.spend(r, s, hold.till, hold.till, hold.units)
      held, at = held - hold.units, max(at, hold.till)
    end
  end
  return rule.slot(r, s, at, cost)
end

-- A state as an ask brought it: the counter's b is that of the value, the window's says whether it is closed.
local function brought(quota, till, a, b)
  local s = { till = till, a = a, b = b, closed = 0 }
  if quota.kind == 2 then s.b, s.closed = 0, b end
  if quota.kind == 3 and b >= CLOSED then s.b, s.closed = b - CLOSED, 1 end
  return s
end

-- What an ask spent of a quota, if it brought that.
local function spent_of(ask, quota, index)
  if not ask.traces or not ask.is_own then return nil end
  local cost, found, given, birth, t1, a1, b1, t2, a2, b2 =
    unpacked('<dddddddddd', orders, ask.traces + index * 80 - 80)
  return { at = ask.spent, cost = cost, give = min(ask[index], cost), before = max(found - max(quota.given - given, 0), 0),
    is_known = quota.s.till > now and (birth == quota.birth or (birth > quota.birth and not ask.accounts)),
    found = brought(quota, t1, a1, b1), after = brought(quota, t2, a2, b2) }
end

-- The state without a turn that has not come, and what that gives back; nothing if a later one may depend on it.
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
  if ask.held then return held_until(ask.value, ask.spent, 0) ~= nil end
  return without(quota, spent_of(ask, quota, index)) ~= nil
end

-- Whether an ask gets what it wants, quota by quota; those that report something do always. Spends of one bucket are one
-- spend of all their units.
local function judge(asks, number, lines, is_tried)
  local ask, granted = asks[number], true
  local held, marked = held_of(ask.value, 0), held_of(ask.value, 1)
  for index, quota in ipairs(ask.group) do
    local cost, ahead = cost_of(ask, ask.group, index), 0
    for earlier = 1, (is_tried or ask.mode >= CHARGE) and 0 or number - 1 do
      local other = asks[earlier]
      if other.value == ask.value and other.spends then ahead = ahead + cost_of(other, ask.group, index) end
    end
    local opens, departs = slot(quota, ask.value, cost + ahead, held)
    local turn = opens -- the earliest moment at which the ask would be granted
    if ask.mode == RESERVE then
      turn = departs - ask.longest
      if quota.r.queues then turn = max(turn, opens) end
    end
    local passed, never = turn <= now, opens == NEVER
    -- A turn that comes in decades could not be kept.
    if never or departs > now + HORIZON * 2 / 3 then passed = false end
    if ask.mode >= CHARGE then passed, never = true, false end
    if ask.mode == RETURN then passed, turn = can_return(ask, quota, index), now end
    granted = granted and passed
    local busy = false
    if not passed and not never and marked > 0 then
      local opens_then, leaves = quota.rule.slot(quota.r, quota.s, now, cost + ahead + held - marked)
      busy = opens_then <= now and (ask.mode ~= RESERVE or leaves - ask.longest <= now)
    end
    if ask.spends then ask.departs = max(ask.departs, departs) end
    lines[#lines + 1] = { ask = ask, quota = quota, cost = cost, passed = passed, busy = busy, never = never,
      turn = turn, departs = departs, index = index }
  end
  return granted
end

-- Which asks of a request that waits are held: those that could go sooner, and are no queues, which let go in the order of
-- arrival. A key can hold half of its burst, or one unit; if there is no more room for that, nothing can be waited for, and the
-- asks that would have to do not pass.
local function hold_back(asks, lines, due)
  local granted, waits, fits, more = true, false, true, {}
  for _, ask in ipairs(asks) do waits = waits or ask.mode == RESERVE end
  for _, ask in ipairs(waits and asks or {}) do
    local value = ask.value
    if ask.spends and ask.most > 0 and ask.departs < due and not ask.group[1].r.queues then
      ask.holds = true
      more[value] = (more[value] or held_of(value, 0)) + ask.most
      for _, quota in ipairs(ask.group) do
        fits = fits and more[value] <= max(floor(quota.r.capacity / 2), 1) and #value.held < MOMENTS
      end
    end
  end
  for _, line in ipairs(fits and {} or lines) do
    if line.ask.spends and line.departs > now then
      line.passed, line.turn, line.never, granted = false, line.departs, line.departs == NEVER, false
    end
  end
  return granted
end

local function hold(value, units, due, marked)
  if units == 0 then return end
  local there = held_until(value, due, marked)
  if there then
    there.units = there.units + units
  else
    table.insert(value.held, { units = units, till = due, marked = marked })
  end
end

local function release(ask, till, marked)
  local there = held_until(ask.value, till, marked)
  local units = there and min(there.units, ask.most) or 0
  if units == 0 then return 0 end
  there.units = there.units - units
  for index, other in ipairs(ask.value.held) do
    if other.units == 0 and other.marked < 2 then table.remove(ask.value.held, index) end
  end
  return units
end

-- Turns that are out: 2 and more of an entry say of which quota, and are odd if the turn waits for another one, or in a queue.
local function note_turn(value, till, kind)
  for _, there in ipairs(value.held) do
    if there.marked == kind then
      there.till = max(there.till, till)
      return
    end
  end
  table.insert(value.held, { units = 0, till = till, marked = kind })
end

-- Whether a turn that is out may depend on what would be given back: it would leave a hole before that, and let another go at
-- the same time.
local function may_depend(value, quota, index)
  for _, there in ipairs(value.held) do
    local is_of = there.marked >= 2 and there.till > now and (not index or floor(there.marked / 2) == index)
    if is_of and (there.marked % 2 == 1 or quota.rule.outstanding(quota.r, quota.s, now) > quota.r.capacity) then
      return true
    end
  end
  return false
end

local change = {}

change[SPEND] = function(ask, due)
  if ask.mark > 0 then hold(ask.value, ask.most, marked_until(due, ask.mark), 1) end
  if ask.holds then return hold(ask.value, ask.most, due, 0) end
  for index, quota in ipairs(due > now and ask.group or {}) do
    local _, departs = quota.rule.slot(quota.r, quota.s, now, cost_of(ask, ask.group, index))
    local waits_here = departs >= due and not quota.r.queues
    note_turn(ask.value, due, index * 2 + (waits_here and 0 or 1))
  end
  each_quota(ask.value, function(quota, group, index)
    local take = group == ask.group and spend or share
    take(quota, now, due, cost_of(ask, group, index), ask.accounts)
  end)
end

change[RESERVE] = change[SPEND]

change[CHARGE] = function(ask)
  each_quota(ask.value, function(quota, group, index)
    touch(quota, now, ask.accounts)
    local took
    quota.s, took = quota.rule.charge(quota.r, quota.s, cost_of(ask, group, index))
    if group == ask.group then ask.took[index] = took end
  end)
end

-- Gives back as if nothing but this had drained since it was spent, or just now if that is not known.
local function give(quota, ago, cost)
  local before = quota.rule.counted(quota.r, quota.s, now)
  quota.s = quota.rule.refund(quota.r, quota.s, ago, cost)
  quota.given = quota.given + max(before - quota.rule.counted(quota.r, quota.s, now), 0)
end

change[REFUND] = function(ask)
  if ask.mark > 0 then release(ask, marked_until(ask.spent, ask.mark), 1) end
  if ask.held and release(ask, ask.spent, 0) > 0 then return end
  local is_turn = ask.spent and ask.traces and ask.spent > now
  local ago = ask.spent and max(now - ask.spent, 0)
  each_quota(ask.value, function(quota, group, index)
    local is_own = group == ask.group
    local spent = is_own and not ask.held and spent_of(ask, quota, index)
    if is_own and is_turn then
      leave(quota, spent)
    elseif ask.spent and not (spent and quota.kind == 4) and may_depend(ask.value, quota, is_own and index) then
      return
    elseif spent then
      if spent.is_known and not (ask.is_exact or quota.kind == 4) then
        give(quota, ago, cost_of(ask, group, index))
      elseif spent.is_known then
        local given
        quota.s, given = quota.rule.give_back(quota.r, quota.s, spent, spent.give)
        quota.given = quota.given + given
      end
    elseif not ask.spent or quota.birth <= ask.spent then
      give(quota, ago, cost_of(ask, group, index))
    end
  end)
end

change[RESET] = function(ask)
  local value = ask.value
  while #value > 0 do table.remove(value) end
  for _, quota in ipairs(ask.group) do quota.s, quota.birth, quota.given = REST, 0, 0 end
  value[1], value.held = ask.group, {}
end

-- A turn that has not come; those of other texts keep it.
change[RETURN] = function(ask)
  if ask.mark > 0 then release(ask, marked_until(ask.spent, ask.mark), 1) end
  if ask.held then
    release(ask, ask.spent, 0)
  else
    for index, quota in ipairs(ask.group) do leave(quota, spent_of(ask, quota, index)) end
  end
end

change[DEPART] = function(ask)
  local units = ask.held and release(ask, ask.spent, 0) or 0
  if units == 0 then return end
  each_quota(ask.value, function(quota, group, index)
    share(quota, now, now, min(cost_of(ask, group, index), units), ask.accounts)
  end)
end

local function add(number)
  -- What was spoiled in a log counts as nothing.
  if not (number >= 0 and number <= NEVER) then number = 0 end
  size = size + 1
  reply[size] = number
end

local function add_state(quota, s)
  if quota.kind == 4 then
    -- The moment of the last entry.
    add(s.b > 0 and s.till - quota.r.period or 0)
    add(0)
    add(0)
    return
  end
  add(s.till)
  add(s.a)
  add(quota.kind == 3 and s.b + s.closed * CLOSED or quota.kind == 2 and s.closed or s.b)
end

local function tell(line, due, granted)
  local ask, quota = line.ask, line.quota
  local r, s, held = quota.r, quota.s, held_of(ask.value, 0)
  local remaining = max(quota.rule.remaining(r, s) - held, 0)
  local available = 0
  if not line.passed then
    if not line.never then available = line.turn - now end
  elseif remaining < r.capacity then
    local opens = slot(quota, ask.value, remaining + 1, held)
    available = opens - now
  end
  local after = s
  for _, hold in ipairs(ask.value.held) do
    if hold.marked == 0 then after = quota.rule.spend(r, after, hold.till, hold.till, hold.units) end
  end
  local resets = quota.rule.reset_after(r, after)
  local took = 0
  if granted then took = ask.spends and line.cost or ask.took[line.index] or 0 end
  add(line.passed and 1 or line.busy and 2 or 0)
  add(line.never and 1 or 0)
  add(r.capacity)
  add(remaining)
  add(resets)
  add(max(available, 0))
  add(took)
  add(ask.holds and 1 or 0)
  add(line.birth)
  add(line.given)
  add(line.before.till > now and quota.rule.counted(r, line.before, due) or 0)
  add_state(quota, line.before)
  add_state(quota, line.after)
end

-- All of a value that an ask may change.
local function copied(value)
  local copy = { changed = value.changed, held = {}, quotas = {} }
  for index, group in ipairs(value) do copy[index] = group end
  for index, hold in ipairs(value.held) do
    copy.held[index] = { units = hold.units, till = hold.till, marked = hold.marked }
  end
  each_quota(value, function(quota) copy.quotas[quota] = { quota.s, quota.birth, quota.given } end)
  return copy
end

local function restore(value, copy)
  while #value > 0 do table.remove(value) end
  for index, group in ipairs(copy) do value[index] = group end
  value.changed, value.held = copy.changed, copy.held
  for quota, was in pairs(copy.quotas) do quota.s, quota.birth, quota.given = was[1], was[2], was[3] end
end

-- Judges each ask as if those before it had been carried out.
local function judge_all(asks, lines)
  local granted, reports, copies = true, {}, {}
  for _, ask in ipairs(asks) do
    if ask.mode >= CHARGE then reports[ask.value] = #asks > 1 end
  end
  for number, ask in ipairs(asks) do
    local passed = judge(asks, number, lines, reports[ask.value])
    granted = granted and passed
    -- Reports beside the spends of a bucket have to be tried out.
    if passed and reports[ask.value] and ask.mode ~= PEEK then
      copies[ask.value] = copies[ask.value] or copied(ask.value)
      change[ask.mode](ask, ask.departs)
    end
  end
  for value, copy in pairs(copies) do restore(value, copy) end
  return granted
end

return function(key, last, at)
  local values, asks, lines, due = {}, {}, {}, now
  for index = key, last do asks[#asks + 1], at = ask_at(index, at, values) end
  local granted = judge_all(asks, lines)
  for _, ask in ipairs(asks) do
    -- Another slot may have given a later turn.
    if ask.spends then due = max(due, ask.departs, ask.spent or 0) end
  end
  if due > now then granted = hold_back(asks, lines, due) and granted end
  local next_line = 1
  for _, ask in ipairs(asks) do
    local from = next_line
    for line = from, from + #ask.group - 1 do
      local quota = lines[line].quota
      lines[line].before = quota.s
      lines[line].given = quota.s.till > now and quota.given or 0
    end
    if granted and ask.mode ~= PEEK then
      change[ask.mode](ask, due)
      ask.value.changed = true
    end
    for line = from, from + #ask.group - 1 do
      lines[line].after, lines[line].birth = lines[line].quota.s, lines[line].quota.birth
    end
    next_line = from + #ask.group
  end
  for _, value in pairs(values) do
    if value.changed then
      forget(value)
      save(value)
    end
  end
  add(1)
  add(granted and due - now or 0)
  local ask
  for _, line in ipairs(lines) do
    if line.ask ~= ask then
      ask = line.ask
      add(#ask.group)
    end
    tell(line, due, granted)
  end
end

