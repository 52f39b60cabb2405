-- sluicegate 1: decides all asks of one request together. The rules are those of sluicegate_core::algorithm, line by
-- line: the same traces must give the same decisions. All numbers are integers below 2^53, exact in a double; none
-- passes through tostring or .. (which keep 14 digits).
--
-- ARGV: the time in microseconds, or '' for the server's; and ten packed doubles per bucket:
--   mode, cost, longest wait (or when it was spent), rule, and six numbers of the rule.
-- KEYS: one per bucket; a second one for the sum of a sliding log.
-- Reply: the time, the common delay, then per bucket:
--   passed, remaining, reset after, available after, never; all waits in microseconds.

local NEVER = 9007199254740991
local HORIZON = 946080000000000 -- no honest state reaches further ahead: thirty years
local STEP = 10000000 -- a clock that went back by more than this was set; what jitters adds up until the next write
local floor, max, min = math.floor, math.max, math.min
local SPEND, PEEK, RESERVE, REFUND, CHARGE, RESET = 0, 1, 2, 3, 4, 5

local now
local slack = 0 -- an injected clock and the server's, by which keys expire, go at different speeds
if ARGV[1] == '' then
  local time = redis.call('TIME') -- read once: it is not frozen inside a script before Redis 7.2
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
else
  now = tonumber(ARGV[1])
  slack = 60000
end

-- Exact below 2^53: a quotient that is not whole differs from every whole number by more than its rounding. Adding b - 1
-- first would not be.
local function ceil_div(a, b)
  return math.ceil(a / b)
end

local function is_over(w, at)
  return w.closed == 1 and at < w.start
end

