-- What a quota starts from that was not there yet, once.
local RESET_WAY, AS_IS, PROPORTIONAL, ADDITIVE, SPENT = 0, 1, 2, 3, 4

local function spent(quota, old)
  local s = old.rule == quota.rule and quota.rule.carried(quota.r, old.r, old.s)
  if s then return s end
  local units = outstanding(old.r, old.s)
  -- It is known, and owes nothing.
  if old.r.keep and units == 0 then return REST end
  -- A fraction that is left makes one entry.
  return fill(quota.r, (quota.rule == log and max(units, 1) or units) * quota.r.per_unit)
end

-- The part of the burst that is left is negative in debt, and rounded towards it.
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

-- The quota of other texts that it follows: of the same rule, or else of the same id, or else the one most spent.
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
        -- One that is known and owes nothing goes before one that is not.
        used = old.begun and max(outstanding(old.r, old.s), 0.5) or 0
      end
      if like > rank or (like == rank and used > most) then best, rank, most = old, like, used end
    end
  end
  return best, rank
end

local function begin(value, text, since, way)
  local group, least = group_of(text, now, max(since, now)), 0
  if way == RESET_WAY then
    -- A version forgets what lower ones have counted; of a reset without one there is nothing left but what came since.
    way, least = SPENT, group.version
  end
  for _, quota in ipairs(group) do
    local old, rank = ancestor(value, quota, least)
    local is_here = old and old.s.till > now
    if old and old.r.keep then is_here = old.begun end
    if is_here then
      if rank == 3 then
        quota.s, quota.birth, quota.given, quota.floor = old.s, old.birth, old.given, old.floor
        quota.full, quota.full_at = old.full, old.full_at
      else
        quota.s, quota.birth = way == SPENT and spent(quota, old) or kept(quota, old, way), now
      end
      -- A key that is known is no newcomer, whatever it has left.
      quota.begun = quota.r.keep ~= nil
      value.changed = true
    end
  end
  return group
end

-- The group that decides for an asker with this text: its own, unless a newer version has been here.
local function own(value, text, since, way)
  local _, version = head_of(text, 1)
  for index = #value, 1, -1 do
    -- It was reset since: what was spent before is forgotten, under whichever rule.
    if value[index].since < since then
      table.remove(value, index)
      value.changed = true
    end
  end
  local group, newest = nil, value[1]
  for _, other in ipairs(value) do
    if other.version > newest.version then newest = other end
    if other.text == text then group = other end
  end
  if newest and newest.version > version then
    group = newest
  elseif not group then
    group = begin(value, text, since, way)
  end
  -- One that is refused is asked, too; that is written now and then.
  if now - group.asked > group.kept / 4 then value.changed = true end
  -- The one asked last comes first, and three are kept; of versions, the newest alone.
  for index = #value, 1, -1 do
    if value[index] == group or value[index].version < group.version then table.remove(value, index) end
  end
  table.insert(value, 1, group)
  value[4] = nil
  return group
end

-- Forgets the texts that nobody asks any more: by the time in which a whole burst comes back, and where that would give
-- nobody anything, as it begins from what the others have counted should it be asked again. (At rest alone would not do: one
-- that begins anew whenever it is asked would let nothing pass.)
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

-- Keys that bring quotas of their own have one group, by which they were counted last: under other quotas a decision goes on from it,
-- and only a spend puts another group in its place. Behind it stays a log of a longer period, which counts what a shorter one forgets,
-- until that period has passed.

-- How much longer a log counts than that of the same quota in another group; 0 if it is none.
local function longer(quota, other)
  return quota and other and quota.rule == log and other.rule == log and max(quota.r.period - other.r.period, 0) or 0
end

-- Gives a group the states of a key as its own quotas count them.
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
      -- What is known of the bucket before is of no other one.
      quota.s, quota.birth, quota.given, quota.floor = spent(quota, old), max(now, old.birth + 1), 0, nil
    else
      quota.s, quota.birth, quota.given, quota.floor = REST, 0, 0, nil
    end
    quota.begun = is_here and quota.r.keep ~= nil
  end
end

-- The text of a report: the quotas by which the key was counted last, but those of the asker for logs, which count by all.
local function reported(newest, text)
  local parts, asker = { newest.head }, group_at(text, 1)
  for index, quota in ipairs(newest) do
    parts[index + 1] = (quota.rule == log and asker or newest)[index].text
  end
  return table.concat(parts)
end

-- What a log has found to be over is still in a longer one, and may not be over by a clock that steps back.
local function recall(group, value)
  for index, quota in ipairs(group) do
    for _, other in ipairs(value) do
      if longer(other[index], quota) > 0 then quota.s = log.cut(quota.r, log.kept(quota.r, other[index].s)) end
    end
  end
  return group
end

-- The group that decides for a key with this text: of a report that of the last spend, whatever its text.
local function own_of_key(value, text, since, way, is_report)
  local quotas, version = head_of(text, 1)
  for index = #value, 1, -1 do
    local group, period = value[index], 0
    for _, quota in ipairs(index > 1 and group or {}) do
      if quota.rule == log then period = max(period, quota.r.period) end
    end
    -- Or it was reset since, or by a higher version: what was spent before is forgotten.
    local is_reset = group.since < since or way == RESET_WAY and group.version < version
    if is_reset or index > 1 and now - group.asked >= period then
      table.remove(value, index)
      value.changed = value.changed or is_reset
    end
  end
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

-- Puts the group of an ask that spends in the place of the one before; a cost of nothing changes nothing, unless its key begins.
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
        -- It is kept for its period after a shorter one took its place, and after the turns that were out then.
        asked = max(asked, other == newest and max(now, old.s.till - old.r.period) or other.asked)
        if longer(old, best) > 0 then best, of = old, other end
      end
    end
    archive[index], text = best, text .. of[index].text
  end
  while #value > 0 do table.remove(value) end
  value[1], value.changed = group, true
  if asked == 0 then return end
  -- Each quota has a state of its own there; of one that has no longer log, none.
  value[2] = group_of(text, asked, group.since)
  for index, quota in ipairs(value[2]) do
    if archive[index] ~= group[index] then quota.s = archive[index].s end
  end
end

-- Another group of the key hears of a spend.
local function hear(ask, quota, from, at, cost)
  if not ask.converts then return share(quota, from, at, cost, ask.accounts) end
  if quota.rule == log then spend(quota, from, at, cost, ask.accounts) end
end
