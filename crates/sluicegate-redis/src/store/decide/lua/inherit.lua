-- The state from which a new quota starts: that of its key as it was when the policy was replaced, or after the last change if that was
-- later, as in handover.rs. No look and no refusal is written, and so none changes a later answer; only here, a key is forgotten when its
-- former units are back.
local RESET_WAY, AS_IS, PROPORTIONAL, ADDITIVE, SPENT = 0, 1, 2, 3, 4

local function spent(quota, old)
  local s = old.rule == quota.rule and quota.rule.carried(quota.r, old.r, old.s)
  if s then return s end
  local units = outstanding(old.r, old.s)
  -- The key is known and owes nothing.
  if old.r.keep and units == 0 then return REST end
  -- A remaining fraction makes one entry.
  return fill(quota.r, (quota.rule == log and max(units, 1) or units) * quota.r.per_unit)
end

-- The remaining part of the burst is negative in debt, and rounded towards debt.
local function kept(quota, old, way)
  local r, was = quota.r, old.r
  local left = was.capacity * was.per_unit - counted(was, old.s, now)
  local times, of = r.per_unit, was.per_unit
  if way == PROPORTIONAL then
    times, of = r.capacity * r.per_unit, was.capacity * was.per_unit
  elseif way == ADDITIVE then
    left = left + max(r.capacity - was.capacity, 0) * was.per_unit
  end
  local parts, more = scaled(math.abs(left), times, of)
  if left < 0 then parts = -parts - more end
  local missing = r.capacity * r.per_unit - parts
  return fill(r, quota.rule == gcra and min(missing, r.ceiling) or missing)
end

-- The quota of other texts that it follows: with the same rule, or else with the same id, or else the most spent one.
local function ancestor(value, quota, least, except)
  local best, rank, most = nil, 0, -1
  for _, group in ipairs(value) do
    for _, old in ipairs((group.version >= least and group ~= except) and group or {}) do
      local like = 1
      if old.code == quota.code and old.numbers == quota.numbers then
        like = 3
      elseif quota.id > 0 and old.id == quota.id then
        like = 2
      end
      local used = old.s.till > now and max(outstanding(old.r, old.s), 1) or 0
      if old.r.keep then
        -- A known key that owes nothing takes precedence over an unknown one.
        used = is_known(old, now) and max(outstanding(old.r, old.s), 0.5) or 0
      end
      if like > rank or (like == rank and used > most) then best, rank, most = old, like, used end
    end
  end
  return best, rank
end

local function begin(value, text, since, way, replaced)
  local group, least, present = group_of(text, now, max(since, now)), 0, now
  now = min(max(replaced, value[1] and value[1].asked or 0), now)
  cut_logs(value)
  if way == RESET_WAY then
    -- A version forgets the counts of lower ones; after a reset without a version, only later units are left.
    way, least = SPENT, group.version
  end
  for _, quota in ipairs(group) do
    local old, rank = ancestor(value, quota, least)
    local is_here = old and old.s.till > now
    if old and old.r.keep then is_here = is_known(old, now) end
    if is_here then
      if rank == 3 then
        quota.s, quota.birth, quota.given, quota.floor = old.s, old.birth, old.given, old.floor
        quota.full, quota.full_at = old.full, old.full_at
      else
        quota.s, quota.birth = way == SPENT and spent(quota, old) or kept(quota, old, way), present
        if quota.r.keep and quota.s.till == 0 then
          quota.full, quota.full_at = { till = 0, a = 0, b = 0 }, now - now % (quota.rule == gcra and quota.r.step or 1)
          quota.s = quota.full
        end
      end
      -- A known key is not a newcomer, whatever its remaining units.
      quota.begun = quota.r.keep and is_known(quota, present)
      if quota.rule == log and quota.s.b > 0 then quota.uncut = quota.s end
    end
  end
  now = present
  cut_logs(value)
  cut_logs({ group })
  value.is_cut = not value[1] and value.is_cut
  return group
end

-- The group that decides for an asker with this text: its own, unless the value has a newer version.
local function own(value, text, since, way, replaced)
  local _, version = head_of(text, 1)
  for index = #value, 1, -1 do
    -- The key was reset since: earlier units are forgotten, under any rule.
    if value[index].since < since then
      table.remove(value, index)
      value.changed = true
    end
  end
  if not value[1] then value.notes = {} end
  local group, newest = nil, value[1]
  for _, other in ipairs(value) do
    if other.version > newest.version then newest = other end
    if other.text == text then group = other end
  end
  if newest and newest.version > version then
    group = newest
  elseif not group then
    if way == RESET_WAY and newest and newest.version < version then value.notes = {} end
    group = begin(value, text, since, way, replaced)
  end
  -- The last used group comes first, and three are kept; of versions, only the newest.
  for index = #value, 1, -1 do
    if value[index] == group or value[index].version < group.version then table.remove(value, index) end
  end
  table.insert(value, 1, group)
  value[4] = nil
  return group
end

-- Forgets texts that are no longer used: after the time in which a whole burst comes back, and only if that gives
-- no key any units, since a text that is used again starts from the counts of the others. (Rest alone is not enough: a text
-- that starts anew at each request would let nothing pass.)
local function forget(value)
  for place = #value, 2, -1 do
    local group, gains = value[place], false
    for _, quota in ipairs(now - group.asked > group.kept and group or {}) do
      local old, rank = ancestor(value, quota, 0, group)
      local again = rank == 3 and old.s or old and spent(quota, old) or REST
      gains = gains or counted(quota.r, again, now) < counted(quota.r, quota.s, now)
    end
    if now - group.asked > group.kept and not gains then table.remove(value, place) end
  end
end

-- Keys that bring quotas of their own have one group, from their last spend: under other quotas a decision continues from it,
-- and only a spend replaces it. After it, a log of a longer period is kept, which counts units that a shorter one forgets,
-- until that period has passed.

-- How much longer a log counts than the log of the same quota in another group; 0 if it is not a log.
local function longer(quota, other)
  return quota and other and quota.rule == log and other.rule == log and max(quota.r.period - other.r.period, 0) or 0
end

-- Gives a group the states of a key under the group's own quotas.
local function go_on(group, value)
  local newest = value[1]
  for index, quota in ipairs(group) do
    local old = newest and newest[index]
    for _, other in ipairs(old and value or {}) do
      if longer(other[index], old) > 0 then old = other[index] end
    end
    if newest and #newest ~= #group then old = ancestor(value, quota, 0) end
    local is_here = old and (old.r.keep and old.begun or not old.r.keep and old.s.till > now)
    if is_here and old.code == quota.code and old.numbers == quota.numbers then
      quota.s, quota.birth, quota.given, quota.floor = old.s, old.birth, old.given, old.floor
      quota.full, quota.full_at = old.full, old.full_at
    elseif is_here then
      -- The data of the previous bucket does not apply to the new one, but a log has the same entries under all quotas.
      local is_log = quota.rule == log and old.rule == log
      quota.s, quota.given, quota.floor = spent(quota, old), 0, nil
      quota.birth = is_log and old.birth or max(now, old.birth + 1)
    else
      quota.s, quota.birth, quota.given, quota.floor = REST, 0, 0, nil
    end
    quota.begun = is_here and quota.r.keep ~= nil
  end
end

-- The text of a report: the quotas of the key's last spend, but the quotas of the asker for logs, which count by all.
local function reported(newest, text)
  local parts, asker = { newest.head }, group_at(text, 1)
  for index, quota in ipairs(newest) do
    parts[index + 1] = (quota.rule == log and asker or newest)[index].text
  end
  return table.concat(parts)
end

-- Entries that a log has dropped as lapsed are still in a longer log, and may not have lapsed if the clock steps back.
local function recall(group, value)
  for index, quota in ipairs(group) do
    for _, other in ipairs(value) do
      if longer(other[index], quota) > 0 then quota.s = log.cut(quota.r, log.kept(quota.r, other[index].s)) end
    end
  end
  return group
end

-- The group that decides for a key with this text: for a report, the group of the last spend, whatever its text.
local function own_of_key(value, text, since, way, is_report)
  local quotas, version = head_of(text, 1)
  for index = #value, 1, -1 do
    local group, period = value[index], 0
    for _, quota in ipairs(index > 1 and group or {}) do
      if quota.rule == log then period = max(period, quota.r.period) end
    end
    -- Or the key was reset since, or by a higher version: earlier units are forgotten.
    local is_reset = group.since < since or way == RESET_WAY and group.version < version
    if is_reset or index > 1 and now - group.asked >= period then
      table.remove(value, index)
      value.changed = value.changed or is_reset
    end
  end
  if not value[1] then value.notes = {} end
  local newest = value[1]
  for _, quota in ipairs(newest and is_report and newest or {}) do
    if quota.rule ~= log and (quota.begun or not quota.r.keep and quota.s.till > now) then
      if quotas ~= #newest then return newest end
      text = reported(newest, text)
      break
    end
  end
  if newest and (newest.text == text or newest.version > version) then return recall(newest, value) end
  local group = group_of(text, now, max(since, now))
  go_on(group, value)
  return group
end

-- Replaces the previous group with the group of an ask that spends; a cost of 0 changes nothing, unless its key begins.
local function adopt(ask, begins)
  local value, group = ask.value, ask.group
  if not ask.converts or value[1] == group or ask.most == 0 and value[1] and not begins then return end
  go_on(group, value)
  local newest, archive, text, asked = value[1], {}, group.head, 0
  for index, own in ipairs(group) do
    local best, of = own, group
    for _, other in ipairs(value) do
      local old = other[index]
      if old and old.s.b > 0 and longer(old, own) > 0 then
        -- It is kept for its period after a shorter log replaced it, and after the turns that were reserved then.
        asked = max(asked, other == newest and max(now, old.s.till - old.r.period) or other.asked)
        if longer(old, best) > 0 then best, of = old, other end
      end
    end
    archive[index], text = best, text .. of[index].text
  end
  while #value > 0 do table.remove(value) end
  value[1], value.changed = group, true
  if asked == 0 then return end
  -- Each quota has a state of its own there; a quota without a longer log has an empty state.
  value[2] = group_of(text, asked, group.since)
  for index, quota in ipairs(value[2]) do
    if archive[index] ~= group[index] then quota.s, quota.birth = archive[index].s, archive[index].birth end
  end
end

-- Records a spend in another group of the key.
local function hear(ask, quota, from, at, cost)
  if not ask.converts then return share(quota, from, at, cost, ask.accounts) end
  if quota.rule == log then spend(quota, from, at, cost, ask.accounts) end
end
