-- sluicegate 6: decides requests one after the other, each for itself and all of its asks together. The rules are those of
-- sluicegate_core::algorithm: the same traces must give the same decisions. All numbers are integers below 2^53, exact in a
-- double; none passes through tostring or .. (which keep 14 digits).
--
-- KEYS: one per ask, the key's name of that policy. Its value is one group per policy text, the asker's own first:
--   text: number of quotas, version, and per quota kind, six numbers of its rule, and id, as encode.rs has them; where newcomers
--     lack units of a burst, these are the sixth number;
--   when its asker has last changed it, which for the first is when the value was written, and since when it is there;
--   per quota its state: 1, until, a, b (of a log: base and count), birth, given; a log's entries follow, time and running sum.
--     Or the short form, for one that began with its group and of which nothing was given back: 0, until, a, b. This until
--     has 6 bytes and counts from when its asker has last changed the group, and a and b have 3 bytes each.
-- A 0 at the end, and behind it units, until when, and why: 0 if they are held for waiting requests, 1 if they were
-- spent by requests that other slots of a Cluster have not decided yet. From 128 on it is no unit but the floor of a quota,
-- counted through all groups: a and until of the latest end of a lease. Numbers of a value have 7 bytes, kinds and forms one.
--
-- ARGV[1], packed: the time or 0 for the server's; then per ask
--   mode (Mode::number; 128 more: not for the short way), 1 if it is the last of its request, the place of its rules in ARGV, how that
--   inherits (8 more: it keeps account of what is given back; 16 more: its peeks write nothing; 32 more: refusals count; 64 more: keys
--   bring quotas of their own),
--   bytes behind the costs, since; a cost per quota; and perhaps the longest wait, when it was spent that is given back (or the
--   turn comes that other slots gave), 1 if it is held, 2 if it goes by the account and 4 if it is a lease, for how long it is
--   marked, per quota what it cost, and its trace, and of a lease per quota the floor that it found.
-- ARGV[2..]: the rules of each policy, as numbers and as text.
-- Reply, packed doubles: the time; per request 0, and six numbers per quota: its state as it was found (of a log the newest moment, the
--   units, and the oldest moment), 0 if the ask passes and otherwise at least 1 (of a log when it would), birth and given. After
--   those of a lease, two more per quota, the floor that it found. sluicegate_core derives the rest. Or what request.lua says.

local NEWCOMERS = 128 -- behind this are the kinds of rules under which newcomers lack units of a burst
local STEP = 60000000 -- beyond this the clock was set on purpose; smaller steps are waited out, and accumulate until the next write
local HORIZON = 946080000000000 -- no honest state reaches further ahead: thirty years
local NEVER = 9007199254740991
local CLOSED = 4294967296 -- above any count of a sliding counter; this is added to one if a later window was given out
local ENTRIES = 2000 -- the most of a log; what comes then counts as part of the last one
local FLOORS = 128 -- no other kind of what stands at the end of a value is as high
local call, pcall, pack, unpacked = redis.call, redis.pcall, struct.pack, struct.unpack
local sub, find, byte = string.sub, string.find, string.byte

local orders = ARGV[1]
local now, slack = unpacked('<d', orders), 60000 -- an injected clock and the server's, by which keys expire, differ
if now == 0 then
  local time = call('TIME') -- read once: it is not frozen inside a script before Redis 7.2
  now, slack = time[1] * 1000000 + time[2], 0
end
-- As long as most are: a table that grows is copied every time.
local reply, size = { now, 0, 0, 0, 0, 0, 0, 0 }, 1
