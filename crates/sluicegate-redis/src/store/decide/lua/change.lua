-- What becomes of a request that is granted: units that are held, spent, given back or taken back.
local MOMENTS = 100 -- the most at which units held of a key are due

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
    if is_of and (there.marked % 2 == 1 or outstanding(quota.r, quota.s) > quota.r.capacity) then
      return true
    end
  end
  return false
end

-- Spends at once up to the ceiling, and says how much took effect. If nothing does, nothing changes.
local function charge_quota(quota, cost, accounts)
  local s, took = charge(quota.r, quota.s, cost)
  if s ~= quota.s then
    touch(quota, now, accounts)
    quota.s = s
  end
  return took
end

-- Spends what was refused, as far as the capacity goes.
local function count_rejected(ask)
  adopt(ask)
  for index, quota in ipairs(ask.group) do
    local r, cost = quota.r, cost_of(ask, ask.group, index)
    if quota.rule == log then
      touch(quota, now, ask.accounts)
      quota.s = log.count_rejected(r, quota.s, cost)
    else
      local ceiling = r.ceiling
      r.ceiling = r.capacity * r.per_unit
      charge_quota(quota, cost, ask.accounts)
      r.ceiling = ceiling
    end
  end
  ask.value.changed = true
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
    local cost = cost_of(ask, group, index)
    if group == ask.group then spend(quota, now, due, cost, ask.accounts) else hear(ask, quota, now, due, cost) end
  end)
end

change[RESERVE] = change[SPEND]

change[CHARGE] = function(ask)
  each_quota(ask.value, function(quota, group, index)
    -- A log of a key's former quotas hears of what took effect under those in force, which come first.
    if ask.converts and group ~= ask.group then return hear(ask, quota, now, now, ask.took[index] or 0) end
    begin_new(quota, now)
    local took = charge_quota(quota, cost_of(ask, group, index), ask.accounts)
    if group == ask.group then ask.took[index] = took end
  end)
end

-- Units that are leased may be spent while all of them are in the bucket, so nothing that is given back lowers it below the
-- latest end of a lease.
local function is_below(s, floor)
  return s.till < floor.till or (s.till == floor.till and s.a > floor.a)
end

-- The state that is left after something was given back. Behind a floor, units have taken places before it, and nobody knows
-- which: from then on all of them count as the first in the bucket.
local function gives(quota, s, given)
  local floor = quota.floor
  if floor and floor.till > now then
    local before = counted(quota.r, quota.s, now)
    if is_below(s, floor) then s = is_below(quota.s, floor) and quota.s or floor end
    given = before > counted(quota.r, s, now) and before or 0
  end
  quota.s, quota.given = s, quota.given + given
  -- What would not be exact any more is another bucket.
  if quota.given > EXACT then quota.birth, quota.given = max(now, quota.birth + 1), 0 end
end

-- Gives back as if nothing but this had drained since it was spent, or just now if that is not known.
local function give(quota, ago, cost)
  local s = quota.rule.refund(quota.r, quota.s, ago, cost)
  gives(quota, s, max(counted(quota.r, quota.s, now) - counted(quota.r, s, now), 0))
end

-- Whether it has what a receipt of the ask is about. Of a key that brings quotas of its own that is what it was counted by last, and a
-- log, which counts by all of them.
local function is_of(ask, quota, group)
  return group == ask.group or ask.converts and (quota.rule == log or group == ask.value[1])
end

-- Ends a lease: those of its units that were not spent are the last of it, and come back as far as they have not drained. The
-- floor is put back to where the lease found it, if it is still the end of this one.
local function end_lease(ask, quota, index)
  local lease, floor = spent_of(ask, quota, index), quota.floor
  if not lease or not lease.is_known then return end
  if floor and floor.till == lease.after.till and floor.a == lease.after.a then
    local till, a = unpacked('<dd', orders, ask.floors + index * 16 - 16)
    quota.floor = till > now and { till = till, a = a, b = 0 } or nil
  end
  if may_depend(ask.value, quota, index) then return end
  lease.cost = ask[index]
  lease.before = max(counted(quota.r, lease.after, lease.at) - lease.cost * quota.r.per_unit, 0)
  gives(quota, gcra.give_back(quota.r, quota.s, lease, lease.cost))
end

change[REFUND] = function(ask)
  if ask.mark > 0 then release(ask, marked_until(ask.spent, ask.mark), 1) end
  if ask.held and release(ask, ask.spent, 0) > 0 then return end
  local is_turn = ask.spent and ask.traces and ask.spent > now
  local ago = ask.spent and max(now - ask.spent, 0)
  each_quota(ask.value, function(quota, group, index)
    if owes_nothing(quota) then return end
    local is_own = is_of(ask, quota, group)
    local spent = is_own and not ask.held and spent_of(ask, quota, index)
    if is_own and ask.floors and quota.rule == gcra then
      end_lease(ask, quota, index)
    elseif is_own and is_turn then
      leave(quota, spent)
    elseif ask.spent and not (spent and quota.rule == log) and may_depend(ask.value, quota, is_own and index) then
      return
    elseif spent then
      if spent.is_known and not (ask.is_exact or quota.rule == log) then
        give(quota, ago, cost_of(ask, group, index))
      elseif spent.is_known then
        gives(quota, quota.rule.give_back(quota.r, quota.s, spent, spent.give))
      end
    elseif not ask.spent or quota.birth <= ask.spent then
      give(quota, ago, cost_of(ask, group, index))
    end
  end)
end

change[RESET] = function(ask)
  local value = ask.value
  while #value > 0 do table.remove(value) end
  for _, quota in ipairs(ask.group) do
    quota.s, quota.birth, quota.given, quota.floor, quota.was = REST, 0, 0, nil, UNKNOWN
    if quota.r.keep then as_newcomer(quota) end
  end
  value[1], value.held = ask.group, {}
end

-- What all other asks have left, and all of its quotas have. Whoever decides by a newer version leases nothing: the asker could
-- not tell for how long.
change[LEASE] = function(ask)
  local units = ask.is_own and NEVER or 0
  for index, quota in ipairs(ask.group) do
    local left = remaining(quota.r, quota.s) - held_of(ask.value, 0)
    units = min(units, cost_of(ask, ask.group, index), left)
    if quota.rule == log or quota.r.queues or quota.r.keep then units = 0 end
  end
  if units <= 0 then return end
  for index, quota in ipairs(ask.group) do ask.took[index], ask.floor[index] = units, quota.floor end
  each_quota(ask.value, function(quota, group)
    if group == ask.group then spend(quota, now, now, units, ask.accounts) else hear(ask, quota, now, now, units) end
    if quota.rule == gcra then quota.floor = quota.s end
  end)
end

-- A turn that has not come; those of other texts keep it.
change[RETURN] = function(ask)
  if ask.mark > 0 then release(ask, marked_until(ask.spent, ask.mark), 1) end
  if ask.held then
    release(ask, ask.spent, 0)
  else
    each_quota(ask.value, function(quota, group, index)
      if is_of(ask, quota, group) then leave(quota, spent_of(ask, quota, index)) end
    end)
  end
end

change[DEPART] = function(ask)
  local units = ask.held and release(ask, ask.spent, 0) or 0
  if units == 0 then return end
  each_quota(ask.value, function(quota, group, index)
    share(quota, now, now, min(cost_of(ask, group, index), units), ask.accounts)
  end)
end

