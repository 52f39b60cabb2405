-- sluicegate 7: decides requests one after the other, each on its own with all of its asks together. The rules are those of
-- sluicegate_core::algorithm: the same traces must give the same decisions. All numbers are integers below 2^53, exact in a
-- double; none passes through tostring or .. (which keep 14 digits).
--
-- KEYS: one per ask, the name of the key under that policy. Its value is one group per policy text, the asker's own first:
--   text: number of quotas, version, and per quota kind, six numbers of its rule, and id, as in encode.rs; if newcomers
--     lack units of a burst, their number is the sixth;
--   the time of its asker's last change, which for the first group is the time of the write, and the time of its creation, or since
--     when it has not been at rest;
--   per quota its state: 1, until, a, b (for a log: base and count), birth, given; a log's entries follow, time and running sum.
--     Or the short form, for a state as old as its group without refunds: 0, until, a, b. This until
--     has 6 bytes and counts from the asker's last change of the group, and a and b have 3 bytes each.
-- Then a 0, followed by notes of units, their end, and a kind: 1 if they were spent by requests that other slots of a Cluster have not
-- decided yet, and from 2 on for reserved turns, as in change.lua. From 128 on, the entry is the floor of a quota,
-- numbered through all groups: a and until of the latest end of a lease. Numbers of a value have 7 bytes, kinds and forms one.
--
-- ARGV[1], packed: the time, or 0 for the server's; the deadline, after which requests that expire are not carried out; then per ask
--   mode (Mode::number; 128 more: not for the short way), 1 if it is the last of its request, the index of its rules in ARGV, how its
--   policy inherits (8 more: it keeps accounts of refunds; 16 more: its peeks write nothing; 32 more: refusals count; 64 more: keys bring
--   quotas of their own; 128 more: its request expires), the number of bytes after the costs, since; a cost per quota; and optionally
--   the longest wait, the time of the spend to give back, 1 if the account is used, 2 if it is a lease and 4 if spends are final, how
--   long its spend is marked, per quota its cost and its trace, and for a lease the floor that it found, per quota.
-- ARGV[2..]: the rules of each policy, as numbers and as text. The numbers of all quotas are followed by the borders of each calendar
--   around this moment: the number of the calendar, the number of borders, and the borders;
--   last the moment at which it replaced another policy here, or 0 if it has not.
-- Reply, packed doubles: the time; per request 0, and six numbers per quota: the state found (for a log the newest moment, the
--   units, and the oldest moment), 0 if the ask passes and otherwise at least 1 (for a log the time when it would), birth and given. After
--   the numbers of a lease, two more per quota: the floor that it found. sluicegate_core derives the rest. Or the reply of request.lua; or 2 alone:
--   the request has expired.

local NEWCOMERS = 128 -- added to the kinds of rules under which newcomers lack units of a burst
local STEP = 60000000 -- after a larger step, the clock was set on purpose; smaller steps are waited out and accumulate until the next write
local HORIZON = 946080000000000 -- no valid state reaches further ahead: thirty years
local NEVER = 9007199254740991
local CLOSED = 4294967296 -- above any count of a sliding counter; added to a count if a later window has a reserved turn
local ENTRIES = 2000 -- the most entries of a log; later units count as part of the last one
local FLOORS = 128 -- no other kind at the end of a value is as high
local SPAN = 1000000 -- keys expire at the next multiple after they are at rest, so that most writes leave the expiry as it is
local call, pcall, pack, unpacked = redis.call, redis.pcall, struct.pack, struct.unpack
local sub, find, byte = string.sub, string.find, string.byte

local orders = ARGV[1]
local now, deadline = unpacked('<dd', orders)
local slack = 60000 -- an injected clock and the server's, by which keys expire, differ
if now == 0 then
  local time = call('TIME') -- read once: it is not frozen inside a script before Redis 7.2
  now, slack = time[1] * 1000000 + time[2], 0
end
