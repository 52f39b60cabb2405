-- The line of a waiting room: the rules of `schedule`, for one call of a line that several instances share.
-- KEYS: line, places, clients, ends, out, ended
-- ARGV: word, clock in us or 0 for the server's, opens at in us, most active or -1, us that a pass lasts, longest line, places per client or
--       -1, ms for which keys are kept, then the rate of a new line (see `rate_of`), and behind it the word's own
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local NEVER = 9007199254740991
local METERED, PAUSED, OPEN = 0, 1, 2
local LINE, PLACES, CLIENTS, ENDS, OUT, ENDED = unpack(KEYS)
local WORD, KEPT = ARGV[1], ARGV[8]
local OPENS, MOST, LASTS, LONGEST, EACH =
  tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
-- Everything of the line but its places, and the line's time.
local line, now
