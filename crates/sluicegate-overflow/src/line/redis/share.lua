-- The share of places whose visitors come, as in `share.rs`, and appointments, as in `calendar.rs`: four bytes for each page of the calendar,
-- of which the first one is `line.first_page`.
local YOUNG, COUNTED, LEAST = 3, 40, 128
local LOOKED_AT, PAGES, DROPPED = 64, 43200, 1024

local function new_share(rank)
  line.block = max(floor(ranks_in(1000000, WHOLE) / 4), 8)
  line.first_block, line.came = floor(rank / line.block) + 1, {}
end

local function has_come(rank)
  local at = floor(rank / line.block) - line.first_block + 1
  if at < 1 or at > 65536 then return end
  for missing = #line.came + 1, at do line.came[missing] = 0 end
  line.came[at] = line.came[at] + 1
end

local function called(rank)
  local last = max(floor(rank / line.block) - YOUNG, 0)
  local begin = max(last - COUNTED, 0)
  local past, came = begin - line.first_block, line.came
  if past > 0 then
    -- All at once: a removal from the front moves all others, and after a crowd was called again there are thousands.
    for at = 1, #came do came[at] = came[at + past] end
    line.first_block = begin
  end
  local counted = max(last - line.first_block, 0)
  if counted == 0 then return end
  local all = 0
  for at = 1, min(counted, #came) do all = all + came[at] end
  line.share = min(max(floor(all * WHOLE / (counted * line.block)), LEAST), WHOLE)
end

local function new_calendar()
  redis.call("DEL", CALENDAR)
  line.page_us = max(span(1, WHOLE), 1000000)
  line.room = max(floor(ranks_in(line.page_us, WHOLE) * 3 / 2), 1)
  line.page, line.first_page = 0, 0
end

-- Drops the pages before this one, many at a time.
local function turn_to(page)
  line.page = max(line.page, page)
  local past = line.page - line.first_page
  if past < DROPPED then return end
  local rest = redis.call("GETRANGE", CALENDAR, past * 4, -1)
  redis.call("SET", CALENDAR, rest, "PX", KEPT)
  line.first_page = line.page
end

-- The first time with room from one on and before another.
local function book(from, till)
  turn_to(floor(now / line.page_us))
  local wished = floor(from / line.page_us)
  local first, booked, guests = (wished - line.first_page) * 4, nil, nil
  for page = 0, LOOKED_AT - 1 do
    local at = from + page * line.page_us
    if at >= till then return nil end
    if wished + page - line.page >= PAGES then return at end
    booked = booked or redis.call("GETRANGE", CALENDAR, first, first + LOOKED_AT * 4 - 1)
    local count = 0
    if page * 4 < #booked then
      -- The others at once, because a crowd has filled most of them.
      if page == 1 then guests = { struct.unpack("<" .. string.rep("I4", #booked / 4), booked) } end
      count = guests and guests[page + 1] or struct.unpack("<I4", booked)
    end
    if count < line.room then
      redis.call("SETRANGE", CALENDAR, first + page * 4, struct.pack("<I4", count + 1))
      if booked == "" then redis.call("PEXPIRE", CALENDAR, KEPT) end
      return at
    end
  end
  return nil
end
