-- The effects of a granted request: units are spent, given back or taken back.

local function mark(value, units, till)
  if units == 0 then return end
  for _, note in ipairs(value.notes) do
    if note.kind == MARK and note.till == till then
      note.units = note.units + units
      return
    end
  end
  table.insert(value.notes, { units = units, till = till, kind = MARK })
end

local function unmark(ask)
  if ask.mark == 0 then return end
  local till = marked_until(ask.spent, ask.mark)
  for index, note in ipairs(ask.value.notes) do
    if note.kind == MARK and note.till == till then
      note.units = note.units - min(note.units, ask.most)
      if note.units == 0 then table.remove(ask.value.notes, index) end
      return
    end
  end
end

-- Reserved turns: a kind of 2 or more gives the quota of an entry, and is odd if the turn waits for another quota or in a queue.
local function note_turn(value, till, kind)
  for _, note in ipairs(value.notes) do
    if note.kind == kind then
      note.till = max(note.till, till)
      return
    end
  end
  table.insert(value.notes, { units = 0, till = till, kind = kind })
end

-- Whether a reserved turn may depend on the units to be given back: the refund would leave a gap before it and let another request
-- proceed at the same time.
local function may_depend(value, quota, index)
  for _, note in ipairs(value.notes) do
    local is_of = note.kind > MARK and note.till > now and (not index or floor(note.kind / 2) == index)
    if is_of and (note.kind % 2 == 1 or outstanding(quota.r, quota.s) > quota.r.capacity) then
      return true
    end
  end
  return false
end

-- Spends at once up to the ceiling, and returns the units that took effect. If none do, nothing changes.
local function charge_quota(quota, cost, accounts)
  local s, took = charge(quota.r, quota.s, cost)
  if s ~= quota.s then
    touch(quota, now, accounts)
    quota.s = s
  end
  return took
end

-- Spends a refused cost, up to the capacity.
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
  if ask.mark > 0 then mark(ask.value, ask.most, marked_until(due, ask.mark)) end
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
    -- A log of a key's former quotas records the units that took effect under the current quotas, which come first.
    if ask.converts and group ~= ask.group then return hear(ask, quota, now, now, ask.took[index] or 0) end
    begin_new(quota, now)
    local took = charge_quota(quota, cost_of(ask, group, index), ask.accounts)
    if group == ask.group then ask.took[index] = took end
  end)
end

-- Leased units may be spent while all of them are in the bucket, so a refund never lowers it below the
-- latest end of a lease.
local function is_below(s, floor)
  return s.till < floor.till or (s.till == floor.till and s.a > floor.a)
end

-- The state after a refund. Units from behind a floor have taken places before it, and which ones is
-- unknown: from then on all of them count as the first in the bucket.
local function gives(quota, s, given)
  local floor = quota.floor
  if floor and floor.till > now then
    local before = counted(quota.r, quota.s, now)
    if is_below(s, floor) then s = is_below(quota.s, floor) and quota.s or floor end
    given = before > counted(quota.r, s, now) and before or 0
  end
  quota.s, quota.given = s, quota.given + given
  -- If the sum would no longer be exact, it becomes a new bucket.
  if quota.given > EXACT then quota.birth, quota.given = max(now, quota.birth + 1), 0 end
end

-- Gives back as if only these units had drained since their spend, or as if spent just now if that time is unknown.
local function give(quota, ago, cost)
  local s = quota.rule.refund(quota.r, quota.s, ago, cost)
  gives(quota, s, max(counted(quota.r, quota.s, now) - counted(quota.r, s, now), 0))
end

-- Whether the group has the units of the ask's receipt. For a key with quotas of its own these are the last quotas, and a log, which counts
-- by all of them.
local function is_of(ask, quota, group)
  return group == ask.group or ask.converts and (quota.rule == log or group == ask.value[1])
end

-- Ends a lease: its unspent units are its last ones, and come back unless they have drained. The
-- floor is restored to its value before the lease, if it is still the end of this lease.
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
  unmark(ask)
  local is_turn = ask.spent and ask.traces and ask.spent > now
  local ago = ask.spent and max(now - ask.spent, 0)
  each_quota(ask.value, function(quota, group, index)
    if owes_nothing(quota) then return end
    local is_own = is_of(ask, quota, group)
    local spent = is_own and spent_of(ask, quota, index)
    if is_own and ask.floors and quota.rule == gcra then
      end_lease(ask, quota, index)
    elseif is_own and is_turn then
      leave(quota, spent)
    elseif ask.is_final or ask.spent and quota.rule ~= log and may_depend(ask.value, quota, is_own and index) then
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
  value[1] = ask.group
  value.notes = {}
end

-- Leases the units that all other asks leave in all of its quotas. A newer version leases nothing: the asker could not
-- know for how long.
change[LEASE] = function(ask)
  local units = ask.is_own and NEVER or 0
  for index, quota in ipairs(ask.group) do
    units = min(units, cost_of(ask, ask.group, index), remaining(quota.r, quota.s))
    if quota.rule == log or quota.r.queues or quota.r.keep then units = 0 end
  end
  if units <= 0 then return end
  for index, quota in ipairs(ask.group) do ask.took[index], ask.floor[index] = units, quota.floor end
  each_quota(ask.value, function(quota, group)
    if group == ask.group then spend(quota, now, now, units, ask.accounts) else hear(ask, quota, now, now, units) end
    if quota.rule == gcra then quota.floor = quota.s end
  end)
end

-- Gives up a turn that has not started; groups of other texts keep it.
change[RETURN] = function(ask)
  unmark(ask)
  each_quota(ask.value, function(quota, group, index)
    if is_of(ask, quota, group) then leave(quota, spent_of(ask, quota, index)) end
  end)
end
