-- One request, the long way. Reply: 1, the delay; per ask its number of quotas and its own delay, and per quota whether it passed (2 more: others
-- may give back units that they have marked: without these it had more, or would have passed), whether it
-- never can, its capacity, the remaining units, the time until it is at rest and until more is available, the spent units, and the
-- trace: birth, given, the counted units, the state before and after, and for a lease the floor before.
local function say(number)
  -- An invalid number in a log counts as 0.
  if not (number >= 0 and number <= NEVER) then number = 0 end
  size = size + 1
  reply[size] = number
end

local function say_state(quota, s)
  if quota.rule == log then
    -- The moment of the last entry.
    s = { till = s.b > 0 and s.till - quota.r.period or 0, a = 0, b = 0 }
  end
  say(s.till)
  say(s.a)
  say(s.b)
end

local function tell(line, granted)
  local ask, quota = line.ask, line.quota
  local r, s = quota.r, quota.s
  local left = max(remaining(r, s), 0)
  local available = 0
  if not line.passed then
    if not line.never then available = line.turn - now end
  elseif left < r.capacity then
    local opens = quota.rule.slot(r, s, now, left + 1)
    available = opens - now
  end
  local resets = quota.rule == counter and counter.reset_after(r, s) or max(s.till - now, 0)
  local took = 0
  if granted then took = ask.spends and line.cost or ask.took[line.index] or 0 end
  say((line.passed and 1 or 0) + (line.busy and 2 or 0))
  say(line.never and 1 or 0)
  say(r.capacity)
  say(left)
  say(resets)
  say(max(available, 0))
  say(took)
  say(line.birth)
  say(line.given)
  say(line.before.till > now and counted(r, line.before, ask.departs) or 0)
  say_state(quota, line.before)
  say_state(quota, line.after)
  if ask.mode == LEASE then
    local floor = ask.floor[line.index] or REST
    say(floor.till)
    say(floor.a)
  end
end

-- The parts of a value that an ask may change.
local function copied(value)
  local copy = { changed = value.changed, notes = {}, quotas = {} }
  for index, group in ipairs(value) do copy[index] = group end
  for index, note in ipairs(value.notes) do
    copy.notes[index] = { units = note.units, till = note.till, kind = note.kind }
  end
  each_quota(value, function(quota)
    copy.quotas[quota] = { quota.s, quota.birth, quota.given, quota.floor, quota.begun, quota.is_new, quota.was }
  end)
  return copy
end

local function restore(value, copy)
  while #value > 0 do table.remove(value) end
  for index, group in ipairs(copy) do value[index] = group end
  value.changed, value.notes = copy.changed, copy.notes
  for quota, was in pairs(copy.quotas) do
    quota.s, quota.birth, quota.given, quota.floor = was[1], was[2], was[3], was[4]
    quota.begun, quota.is_new, quota.was = was[5], was[6], was[7]
  end
end

-- Judges each ask as if the asks before it had been carried out, also those that are refused: the whole request passes after the
-- longest of the waits.
local function judge_all(asks, lines)
  local granted, reports, copies = true, {}, {}
  for _, ask in ipairs(asks) do
    if ask.mode >= CHARGE and ask.mode ~= LEASE then reports[ask.value] = #asks > 1 end
  end
  for number, ask in ipairs(asks) do
    local passed = judge(asks, number, lines)
    granted = granted and passed
    -- Reports beside the spends of a bucket have to be tried out.
    ask.tried = passed and reports[ask.value] and ask.mode ~= PEEK and ask.mode ~= LEASE
    if ask.tried then
      copies[ask.value] = copies[ask.value] or copied(ask.value)
      change[ask.mode](ask, ask.departs)
    end
  end
  for value, copy in pairs(copies) do restore(value, copy) end
  return granted
end

-- Spends refused costs under policies that count them; if there is no room, the same ask passes afterwards.
local function count_refused(asks, lines)
  local counts, again = false, {}
  for _, ask in ipairs(asks) do
    if ask.counts then
      counts = true
      count_rejected(ask)
    end
  end
  if not counts then return end
  judge_all(asks, again)
  for index, line in ipairs(lines) do
    local judged = again[index]
    if not line.passed and not judged.passed then line.turn, line.never = judged.turn, judged.never end
  end
end

-- If newcomers start with less than a burst, the key of an ask that spends is known from now on, whatever the outcome.
-- Other asks only look at a newcomer.
local function begin_all(asks)
  for _, ask in ipairs(asks) do
    for _, quota in ipairs(ask.group) do
      if quota.r.keep and not quota.begun then
        if ask.spends or ask.mode == CHARGE then
          adopt(ask, true)
          begin_new(quota, now)
          ask.value.changed = true
        else
          as_newcomer(quota)
        end
      end
    end
  end
end

-- Carries out an ask of a granted request. Its lines begin at `from` and record the state before and after.
local function carry_out(ask, lines, from, granted, due)
  local spends = ask.spends or ask.mode == CHARGE or ask.mode == LEASE and due <= now
  if granted and spends then adopt(ask) end
  for line = from, from + #ask.group - 1 do
    local quota = lines[line].quota
    lines[line].before = quota.s
    lines[line].given = quota.s.till > now and quota.given or 0
  end
  if granted and ask.mode ~= PEEK and (ask.mode ~= LEASE or due <= now) then
    change[ask.mode](ask, ask.departs)
    local is_look = ask.most == 0 and due <= now and (ask.mode <= CHARGE or ask.mode == LEASE)
    ask.value.changed = ask.value.changed or not is_look
    -- For a log with a report under other quotas.
    if ask.converts and ask.value[1] and ask.value[1] ~= ask.group then
      go_on(ask.group, ask.value)
      begin_all({ ask })
    end
  end
  for line = from, from + #ask.group - 1 do
    lines[line].after, lines[line].birth = lines[line].quota.s, lines[line].quota.birth
  end
end

return function(key, last, at)
  local values, asks, lines, due = {}, {}, {}, now
  for index = key, last do asks[#asks + 1], at = ask_at(index, at, values) end
  begin_all(asks)
  local granted = judge_all(asks, lines)
  for _, ask in ipairs(asks) do
    due = max(due, ask.departs)
  end
  if not granted then count_refused(asks, lines) end
  -- Leases take the units that all other asks leave.
  for _, is_lease in ipairs({ false, true }) do
    local from = 1
    for _, ask in ipairs(asks) do
      if (ask.mode == LEASE) == is_lease then carry_out(ask, lines, from, granted, due) end
      from = from + #ask.group
    end
  end
  for _, value in pairs(values) do
    -- Data that is over is dropped by looks, too.
    if (value.changed or value.is_cut) and value.is_asked then
      forget(value)
      save(value)
    end
  end
  say(1)
  say(granted and due - now or 0)
  local ask
  for _, line in ipairs(lines) do
    if line.ask ~= ask then
      ask = line.ask
      say(#ask.group)
      say(granted and ask.departs - now or 0)
    end
    tell(line, granted)
  end
end

