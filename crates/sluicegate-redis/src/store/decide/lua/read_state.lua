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
