-- The state as bytes: most have the short form.
local is_short = birth == since and given == 0 and new_till >= now and new_till - now < 281474976710656
if is_short and new_a < 16777216 and new_b < 16777216 then
  state = pack('<BI6I3I3', 0, new_till - now, new_a, new_b)
else
  state = pack('<BI7I7I7I7I7', 1, new_till, new_a, new_b, birth, given)
end
