-- Windows of a calendar: fixed windows and buckets that are refilled at borders, whose lengths differ. State: as of windows. Redis has
-- no calendar, so that the borders come with the call. A debt ends at the next border.

--- open
-- Limit, longest period, burst, ceiling, and the number of the calendar.
capacity, ceiling, start = r3, r4, period_at(r, at)
if till > at then
  local borders, left = lumps(r, a), borders_between(r, at, till)
  if not left then
    -- Without its calendar, no unit has come back.
    start, used, closed = after_borders(r, till, -borders), a, b
  elseif left >= borders then
    start, used, closed = after_borders(r, start, left - borders), a, b
  elseif left > 0 then
    used, closed = max(min(a, r3) - (borders - left) * r1, 0), b
  end
end
counted = used

--- close
new_till, new_a, new_b = after_borders(r, start, lumps(r, used)), used, closed

--- long
local calendar = {}
for name, answer in pairs(window) do calendar[name] = answer end

function calendar.rule(limit, longest, burst, ceiling, id)
  local r = window.rule(limit, longest, burst, ceiling, id)
  r.kind, r.step, r.lasting = CALENDAR, nil, burst
  return r
end

-- To the next border, like all ends of states.
function calendar.set_back(r, s, step)
  local till = period_at(r, s.till - step)
  return { till = till < s.till - step and after_borders(r, till, 1) or till, a = s.a, b = s.b }
end
