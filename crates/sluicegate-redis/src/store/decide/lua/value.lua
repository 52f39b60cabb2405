-- A key's value: its groups, one per policy text, and its notes.
local MARK = 1 -- the kind of notes of units that other slots have not decided yet; reserved turns have higher kinds
local UNKNOWN = { s = REST, birth = 0, given = 0 } -- an unknown key, if newcomers start with less than a burst

local SIZES = { [0] = '', 'I1', 'I2', 'I3', 'I4', 'I5', 'I6', 'I7' }

local function read_state(raw, from, written, since)
  local till, a, b, birth, given
  --> read_state
  return till, a, b, birth, given, from
end

local function write_state(now, since, new_till, new_a, new_b, birth, given)
  local state
  --> write_state
  return state
end

-- The number of quotas of a text, its version, and the start of the first quota.
local function head_of(text, at)
  local quotas, version = byte(text, at), 0
  at = at + 1
  if quotas >= 128 and at + 7 <= #text then version, at = unpacked('<d', text, at) end
  return quotas % 128, version, at
end

-- The quota of a text at `from`, and its end; nil if it is invalid.
local function quota_at(text, from)
  if from + 2 > #text then return nil end
  local head, sizes, at = unpacked('<BH', text, from)
  local code, rule, last, missing = head - floor(head / 64) % 2 * 64, rules[head % 8], floor(head / 8) % 8, nil
  local format = '<' .. SIZES[sizes % 8] .. SIZES[floor(sizes / 8) % 8] .. SIZES[floor(sizes / 64) % 8]
    .. SIZES[floor(sizes / 512) % 8] .. SIZES[floor(sizes / 4096) % 8] .. SIZES[last]
  local behind = at + struct.size(format)
  local ends = behind + (code ~= head and 4 or 0)
  if not rule or ends > #text + 1 then return nil end
  local r1, r2, r3, r4, r5, r6 = unpacked(format, text, at)
  if last == 0 then r6 = 0 end
  if not r5 or not r6 then return nil end
  if code >= NEWCOMERS then missing, r6 = r6 - 1, 0 end
  local r = rule.rule(r1 - 1, r2 - 1, r3 - 1, r4 - 1, r5 - 1, r6 - 1)
  -- A bucket that is full is kept for as long as a full burst takes to refill; then its key is a newcomer.
  if missing then r.missing, r.keep = missing, r.refill end
  return { text = sub(text, from, ends - 1), code = code, id = code ~= head and unpacked('<I4', text, behind) or 0,
    numbers = sub(text, from + 1, behind - 1), rule = rule, r = r, s = REST, birth = 0, given = 0, was = UNKNOWN }, ends
end

-- The state after units that proceed at a moment: at `from`, or at a later turn.
local function add(r, s, from, at, cost)
  if cost == 0 then return s end
  if r.queues then
    -- A queue's own turn does not move its schedule.
    local _, departs = gcra.slot(r, s, from, cost)
    if at <= departs then at = from end
  end
  local w = open(r, s, at)
  return w.used == NEVER and s or add_to(r, w, from, at, cost * r.per_unit)
end

-- A newcomer's state; it is only read until the key begins.
local function as_newcomer(quota)
  quota.s = fill(quota.r, quota.r.missing * quota.r.per_unit)
  quota.birth, quota.given, quota.begun, quota.is_new = NEVER, 0, false, true
end

-- Until when a bucket that is full at a moment is kept.
local function kept_until(r, till)
  return r.kind == GCRA and till + r.keep or after_borders(r, till, r.keep / r.period)
end

-- When a known key is full, or was. A window does not record it: its state would begin there if the clock went back.
local function full_at(quota)
  return quota.s == quota.full and quota.full_at or quota.s.till
end

local function is_known(quota, at)
  local till = full_at(quota)
  return not quota.is_new and till > 0 and kept_until(quota.r, till) > at
end

-- If newcomers start with less than a burst, an unknown key begins.
local function begin_new(quota, at)
  if not quota.r.keep or quota.begun then return end
  if not is_known(quota, at) then
    quota.s = add(quota.r, REST, at, at, quota.r.missing)
    quota.birth, quota.given = at, 0
  end
  quota.begun, quota.is_new = true, false
end

-- Whether there are no units to give back.
local function owes_nothing(quota)
  return quota.r.keep and (not quota.begun or quota.s.till <= now)
end

-- The state that is written, and the end of its use. If it has no moment, it has become full just now. A state that is not begun
-- stays unchanged: the clock may go back to a time when its key was known.
local function kept_state(quota)
  local s = quota.s
  if not quota.r.keep then return s, s.till, quota.birth, quota.given end
  if not quota.begun then
    local was = quota.was
    return was.s, was.s.till > 0 and kept_until(quota.r, was.s.till) or 0, was.birth, was.given
  end
  if s.till == 0 then
    local till = full_at(quota)
    s = { till = till > 0 and till or now - now % (quota.rule == gcra and quota.r.step or 1), a = 0, b = 0 }
  elseif s.b == 1 and s.a == 0 and s ~= quota.was.s then
    s = { till = max(s.till, now), a = 0, b = 1 }
  end
  return s, kept_until(quota.r, s.till), quota.birth, quota.given
end

-- The group with the text at `from`, and the end of the text; nil if it is not a text.
local function group_at(raw, from)
  local quotas, version, at = head_of(raw, from)
  local group = { head = sub(raw, from, at - 1), text = '', version = version, asked = 0, since = 0, kept = STEP }
  for index = 1, quotas do
    group[index], at = quota_at(raw, at)
    if not group[index] then return nil end
    -- By then, all units that it has let pass have drained.
    group.kept = max(group.kept, group[index].r.refill + (group[index].r.keep or 0))
  end
  group.text = sub(raw, from, at - 1)
  return group, at
end

local function group_of(text, asked, since)
  local group = group_at(text, 1)
  group.asked, group.since = asked, since
  return group
end

-- Reads the states of a group, and returns the start of the next; nil if they are not states.
local function read_states(group, raw, at)
  for _, quota in ipairs(group) do
    local till, a, b, birth, given
    till, a, b, birth, given, at = read_state(raw, at, group.asked, group.since)
    if not till or till > now + HORIZON then return nil end
    local s = { till = till, a = a, b = b }
    if quota.rule == log then
      if b < 1 then
        s = REST
      else
        if at + b * 14 - 1 > #raw then return nil end
        s.entries = sub(raw, at, at + b * 14 - 1)
        at = at + b * 14
        if not log.is_sound(quota.r, s) then return nil end
      end
    end
    quota.s, quota.birth, quota.given = s, birth, given
  end
  return at
end

local function each_quota(value, change)
  for _, group in ipairs(value) do
    for index, quota in ipairs(group) do change(quota, group, index) end
  end
end

-- Gives each quota its floor, by number; a floor in the past is dropped.
local function give_floors(value, floors)
  local number = FLOORS
  each_quota(value, function(quota)
    local floor = floors[number]
    if floor and floor.till > now then quota.floor = floor end
    number = number + 1
  end)
end

-- The groups, notes and floors in a value; nil if it is a foreign value.
local function read(raw)
  local value, at, step = { found = true, notes = {} }, 1, nil
  while at <= #raw do
    if byte(raw, at) == 0 and step then
      if (#raw - at) % 15 > 0 then return nil end
      local floors = {}
      for from = at + 1, #raw - 14, 15 do
        local units, till, kind = unpacked('<I7I7B', raw, from)
        if units > NEVER or till > now + HORIZON then return nil end
        if kind >= FLOORS then
          floors[kind] = { till = till, a = units, b = 0 }
        else
          table.insert(value.notes, { units = units, till = till, kind = kind })
        end
      end
      give_floors(value, floors)
      return value, step
    end
    local group, states = group_at(raw, at)
    if not group or #group == 0 or states + 13 > #raw then return nil end
    group.asked, group.since = unpacked('<I7I7', raw, states)
    if group.asked > now + HORIZON or group.since > NEVER then return nil end
    step = step or group.asked - now
    at = read_states(group, raw, states + 14)
    if not at then return nil end
    value[#value + 1] = group
  end
  return step and value, step
end

-- A bucket that leaves its rest is born. When the clock goes back a little, units spent then do not count as spent before the
-- birth, if the birth is all that is known of it.
local function touch(quota, from, accounts)
  if quota.s.till <= from then
    quota.birth, quota.given = from, 0
  elseif quota.birth > from and not accounts then
    quota.birth = from
  end
end

local function spend(quota, from, at, cost, accounts)
  begin_new(quota, from)
  if cost == 0 then return end
  touch(quota, from, accounts)
  quota.s = add(quota.r, quota.s, from, at, cost)
end

-- Charges units that passed under another text. A bucket counts only the units that fill it (if units come back in lumps, one lump
-- more): all texts together then pass as much as the largest would, and a small one never ends with a debt of years.
local function share(quota, from, at, cost, accounts)
  begin_new(quota, from)
  local r = quota.r
  local room = max(r.most * r.per_unit - counted(r, quota.s, at), 0)
  spend(quota, from, at, min(cost, ceil_div(room, r.per_unit)), accounts)
end

-- Drops the notes that are over.
local function drop_notes(value)
  local notes = {}
  for _, note in ipairs(value.notes) do
    if note.till > now then notes[#notes + 1] = note else value.is_cut = true end
  end
  value.notes = notes
end

-- Drops the entries that have lapsed by now.
local function cut_logs(value)
  each_quota(value, function(quota)
    if not quota.uncut then return end
    quota.s = log.cut(quota.r, quota.uncut)
    value.is_cut = value.is_cut or quota.s ~= quota.uncut
  end)
end

local function load(key)
  local raw = pcall('GET', key)
  if type(raw) == 'table' then
    -- A value of another type is foreign and is overwritten. Any other error is an outage: it is raised unchanged.
    if not string.find(raw.err, 'WRONGTYPE', 1, true) then call('GET', key) end
    return { found = true, notes = {}, key = key }
  end
  if not raw then return { found = false, notes = {}, key = key } end
  local value, step = read(raw)
  if not value then return { found = true, notes = {}, key = key } end
  value.key = key
  if step > STEP then
    -- Written at once, whatever the request: from here on, time passes for it again.
    each_quota(value, function(quota)
      quota.s = quota.rule.set_back(quota.r, quota.s, step)
      quota.floor = quota.floor and quota.rule.set_back(quota.r, quota.floor, step)
    end)
    for _, note in ipairs(value.notes) do note.till = note.till - step end
    for _, group in ipairs(value) do group.asked = max(group.asked - step, 0) end
    value.changed = true
  end
  each_quota(value, function(quota)
    if quota.r.keep then
      local s = quota.s
      quota.was = { s = s, birth = quota.birth, given = quota.given }
      if quota.rule ~= gcra and s.a == 0 and s.b == 0 then
        quota.full, quota.full_at = { till = 0, a = 0, b = 0 }, s.till
        quota.s = quota.full
      end
      quota.begun = is_known(quota, now)
    elseif quota.rule == log and quota.s.b > 0 then
      quota.uncut = quota.s
    end
  end)
  cut_logs(value)
  drop_notes(value)
  return value
end

local function written(group)
  local parts = { group.text, pack('<I7I7', group.asked, group.since) }
  for index, quota in ipairs(group) do
    local s, _, birth, given = kept_state(quota)
    parts[index + 2] = write_state(group.asked, group.since, s.till, s.a, s.b, birth, given) .. (s.entries or '')
  end
  return table.concat(parts)
end

local function save(value)
  local parts, till, number = {}, 0, FLOORS
  each_quota(value, function(quota)
    local _, needed = kept_state(quota)
    till = max(till, needed)
  end)
  -- An injected clock may go back to a time when the key was not at rest.
  if #value.notes == 0 and till <= now - slack * 1000 then
    if value.found then call('DEL', value.key) end
    return
  end
  if value[1] and value.changed then value[1].asked = now end
  for index, group in ipairs(value) do parts[index] = written(group) end
  each_quota(value, function(quota)
    if quota.floor then parts[#parts + 1] = pack('<I7I7B', quota.floor.a, quota.floor.till, number) end
    number = number + 1
  end)
  if #value.notes > 0 or #parts > #value then
    table.insert(parts, #value + 1, '\0')
    for _, note in ipairs(value.notes) do
      parts[#parts + 1] = pack('<I7I7B', note.units, note.till, note.kind)
    end
  end
  local px = max(ceil_div(till - till % SPAN + SPAN - now, 1000), 1) + slack
  -- A corrupt log may give any number.
  if not (px <= HORIZON) then return call('DEL', value.key) end
  call('SET', value.key, table.concat(parts), 'PX', px)
end

