    end)()
    slow(first, key - 1, began)
  elseif granted and value then
    for write = 0, writes do
      if write > 0 then name, value, expiry = names[write], values[write], expiries[write] end
      if expiry then call('SET', name, value, 'PX', expiry) else call('SET', name, value, 'KEEPTTL') end
    end
  end
end
if size == 8 then return pack('<dddddddd', unpack(reply)) end
return pack('<' .. string.rep('d', size), unpack(reply, 1, size))
