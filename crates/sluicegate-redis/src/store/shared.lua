-- The bytes that instances share.
--
-- KEYS[1]: their key. ARGV: nothing, to read them; or the expected bytes, the new bytes, and for how many
-- milliseconds they are needed.
-- Reply: the server's time, and the bytes that are there now.
local time = redis.call('TIME')
local there = redis.pcall('GET', KEYS[1])
if type(there) == 'table' and not string.find(there.err, 'WRONGTYPE', 1, true) then return there end
if type(there) ~= 'string' then there = '' end -- there is no value, or a foreign one
if ARGV[2] and there == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  there = ARGV[2]
end
return { time[1], time[2], there }
