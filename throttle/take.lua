-- take.lua: decide calls. Each takes its permits from every limit or from none.
--
-- KEYS      buckets: one for each limit, for every distinct set of keys
-- ARGV[1]   now_us: the caller's clock, for tests; '' for TIME of this Redis
-- ARGV[2]   'take' now or never | 'reserve' also later | 'peek take' and 'peek reserve'
--           answer as these, and change nothing
-- ARGV[3]   limits: how many
-- ARGV[4..] six for each limit (limit_read), then five for each question:
--   which   set of keys, 1..
--   n       permits wanted, >= 1
--   within  the longest delay that the call accepts, µs; 0: now or not at all
--   id      of the call, for the permits of concurrency limits
--   times   how many calls ask this, one after the other
-- Returns   {now_us, six for each call ..., and for 'reserve' the marks of
--           each limit's bucket (limit_refund), ..., then pairs: number of a
--           call, reason of the pause that held it or what is wrong with a key}
--   taken   1 | 0 | -1: n can never be admitted by the limit | -2: a key of the call holds no bucket
--   limit   which limit caused the delay or refused; if none did, the one with the
--           fewest permits left
--   delay   µs until the slot
--   wait    µs until the same call would be admitted; 0 if it was
--   left    permits that this limit still has
--   reset   µs until this limit is full again
-- Clock     TIME of this Redis, read once
-- Integers only: Redis truncates a Lua number on its way out.
local now, mode, count = limit_clock(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local reserve = mode == 'reserve' or mode == 'peek reserve'
local peek = mode == 'peek take' or mode == 'peek reserve'
local limits = {}
for i = 1, count do limits[i] = limit_read(4 + (i - 1) * 6) end

local opened, buckets = {}, {} -- by key, and by its place in KEYS
local function bucket(place, i)
  local key = KEYS[place]
  local b = opened[key]
  if not b then
    b = limit_open(limits[i], key, now)
    opened[key] = b
    b.detailed, b.reserves = reserve, reserve -- it may be settled, which needs to know more
  end
  buckets[place] = b
  return b
end

local reply, marks, reasons = {now}, {}, {}

local function decide(which, n, within, id)
  local first = (which - 1) * count
  -- The moment at which all admit: each round moves it to the latest answer, and
  -- a round that moves nothing ends it. It only grows, so it ends.
  local t, binding = now, 0
  local opens, held_by = now, 0 -- when the same call would be admitted, and what holds it till then
  repeat
    local moved = false
    for i = 1, count do
      local holds = limits[i].a == 'cc' -- its permit from now on, and not from the slot
      local e = limit_earliest(limits[i], buckets[first + i] or bucket(first + i, i), now, holds and now or t, n)
      if not e then return -1, i, 0, 0, 0, 0 end
      if e > t then t, binding, moved = e, i, true end
      -- A permit of another call comes back or lapses; there is no slot to wait for.
      if holds and e > opens then opens, held_by = e, i end
    end
  until not moved or count == 1

  if t - within > opens then opens, held_by = t - within, binding end
  if reserve then
    for i = 1, count do
      local place = limit_place(limits[i], buckets[first + i], now, t, n)
      if place > opens then opens, held_by = place, i end
    end
  end
  local refused = opens > now
  if refused then binding = held_by end
  if not refused and not peek then
    for i = 1, count do limit_commit(limits[i], buckets[first + i], now, t, n, id) end
  end
  local shown, left = binding, nil
  if binding > 0 then
    left = limit_left(limits[binding], buckets[first + binding], now)
  else
    for i = 1, count do
      local rest = limit_left(limits[i], buckets[first + i], now)
      if not left or rest < left then shown, left = i, rest end
    end
  end
  local b = buckets[first + shown]
  return refused and 0 or 1, shown, t - now, opens - now, left, limit_reset(limits[shown], b, now), binding > 0 and b.pause > now and b.why
end

-- A damaged key concerns only the calls that need it. They raise before they take anything.
local function attempt(ok, ...)
  if ok then return ... end
  local fault = ...
  if not string.find(tostring(fault), ' holds no bucket$') then error(fault, 0) end
  return -2, 0, 0, 0, 0, 0, fault
end

for at = 4 + count * 6, #ARGV, 5 do
  local which, n, within, id = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  local taken, shown, delay, wait, left, reset, why = 1
  for _ = 1, tonumber(ARGV[at + 4]) do
    -- A call that asks for what was just refused is refused, too.
    if taken == 1 then taken, shown, delay, wait, left, reset, why = attempt(pcall(decide, which, n, within, id)) end
    local r = #reply
    if why then reasons[#reasons + 1], reasons[#reasons + 2] = (r - 1) / 6, why end
    reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5], reply[r + 6] = taken, shown, delay, wait, left, reset
    if mode == 'reserve' then
      local first = (which - 1) * count
      for i = 1, count do marks[#marks + 1] = buckets[first + i] and limit_mark(buckets[first + i]) or 0 end
    end
  end
end

-- A refusal writes nothing unless it is the first to see a changed limit or a clock
-- that was set back: what is owed would not drain as it should.
if not peek then
  for _, b in pairs(opened) do limit_save(b, now) end
end
for i = 1, #marks do reply[#reply + 1] = marks[i] end
for i = 1, #reasons do reply[#reply + 1] = reasons[i] end
return reply
