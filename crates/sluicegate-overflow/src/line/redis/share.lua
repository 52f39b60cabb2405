-- The share of places whose visitors come, as in `share.rs`, and appointments, as in `calendar.rs`.
local YOUNG, COUNTED, LEAST = 3, 40, 128
local LOOKED_AT, PAGES = 64, 43200

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
  while line.first_block < begin do
    line.first_block = line.first_block + 1
    if table.remove(line.came, 1) == nil then line.first_block = begin end
  end
  local counted = max(last - line.first_block, 0)
  if counted == 0 then return end
  local came = 0
  for at = 1, min(counted, #line.came) do came = came + line.came[at] end
  line.share = min(max(floor(came * WHOLE / (counted * line.block)), LEAST), WHOLE)
end

local function new_calendar()
  redis.call("DEL", CALENDAR)
  line.page_us = max(span(1, WHOLE), 1000000)
  line.room = max(floor(ranks_in(line.page_us, WHOLE) * 3 / 2), 1)
  line.page, line.last_page = 0, 0
end

-- Drops the pages before this one.
local function turn_to(page)
  if page > line.last_page then
    redis.call("DEL", CALENDAR)
  else
    for past = line.page, page - 1 do redis.call("HDEL", CALENDAR, past) end
  end
  line.page = max(line.page, page)
end

-- The first time with room from one on and before another.
local function book(from, till)
  turn_to(floor(now / line.page_us))
  local wished, booked = floor(from / line.page_us), nil
  for page = wished, wished + LOOKED_AT - 1 do
    local at = from + (page - wished) * line.page_us
    if at >= till then return nil end
    if page - line.page >= PAGES then return at end
    local guests
    if page == wished then
      guests = redis.call("HGET", CALENDAR, page)
    else
      -- All others at once, because a crowd has filled most of them.
      if not booked then
        local pages = {}
        for ahead = 1, LOOKED_AT - 1 do pages[ahead] = wished + ahead end
        booked = redis.call("HMGET", CALENDAR, unpack(pages))
      end
      guests = booked[page - wished]
    end
    if not guests or tonumber(guests) < line.room then
      redis.call("HINCRBY", CALENDAR, page, 1)
      redis.call("PEXPIRE", CALENDAR, KEPT)
      line.last_page = max(line.last_page, page)
      return at
    end
  end
  return nil
end
