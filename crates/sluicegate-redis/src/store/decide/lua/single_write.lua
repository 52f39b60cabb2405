    if new_till < now or new_till - now >= 281474976710656 or new_a >= 16777216 or new_b >= 16777216 then break end
    local value = text .. pack('<I7I7BI6I3I3', now, begun, 0, new_till - now, new_a, new_b)
    local rests = new_till - new_till % SPAN
    if raw and slack == 0 and till - till % SPAN == rests then
      call('SET', name, value, 'KEEPTTL')
    else
      local expiry = (rests + SPAN - now) / 1000
      call('SET', name, value, 'PX', expiry - expiry % 1 + 1 + slack)
    end
  end
  if count == 1 then return pack('<dddddddd', now, 0, till, a, b, opens, birth, 0) end
  reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = 0, till, a, b
  reply[size + 5], reply[size + 6], reply[size + 7] = opens, birth, 0
  key, place, size = key + 1, place + 22, size + 7
end
