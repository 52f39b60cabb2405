    end)()
    slow(first, key - 1, began)
  elseif granted and value then
    call('SET', name, value, 'PX', expiry)
    for write = 1, writes do call('SET', names[write], values[write], 'PX', expiries[write]) end
  end
end
if size == 8 then return pack('<dddddddd', unpack(reply)) end
return pack('<' .. string.rep('d', size), unpack(reply, 1, size))
