-- The states of quotas, as bytes.

--- read_state
-- Reads the state at `from`; `till` is nil if there is no state.
till = nil
if from + 12 <= #raw then
  local form
  form, till, a, b = unpacked('<BI6I3I3', raw, from)
  till, birth, given, from = written + till, since, 0, from + 13
  if form > 0 then
    till = nil
    if form == 1 and from + 22 <= #raw then
      till, a, b, birth, given = unpacked('<I7I7I7I7I7', raw, from - 12)
      from = from + 23
      if a > NEVER or b > NEVER or birth > NEVER or given > NEVER then till = nil end
    end
  end
end

--- write_state
-- The state as bytes: most have the short form.
local is_short = birth == since and given == 0 and new_till >= now and new_till - now < 281474976710656
if is_short and new_a < 16777216 and new_b < 16777216 then
  state = pack('<BI6I3I3', 0, new_till - now, new_a, new_b)
else
  state = pack('<BI7I7I7I7I7', 1, new_till, new_a, new_b, birth, given)
end
