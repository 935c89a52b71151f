-- plain.lua: make the most common decisions cheaply.
--
-- It decides calls of token buckets, and of leaky buckets that police, whose states are
-- plain (limits.lua) or absent. Its decisions are exactly those of take.lua. A call with
-- a bucket that it does not know is left to take.lua, and nothing is changed for it. It
-- does not use the library, because Redis creates functions anew at every call, which
-- would be a third of the time.
--
-- KEYS      buckets: one for each limit, for every distinct set of keys
-- ARGV[1]   now_us: the caller's clock, for tests; '' for TIME of this Redis
-- ARGV[2]   limits: how many
-- ARGV[3..] five for each limit: p, units that one permit takes; r, units that flow back
--           per µs; b, permits of a full bucket; what the rate is behind a bucket that is an
--           integer, '' if none can be, and behind one that is a text (limits.lua). Then three
--           for each question: which set of keys; n, permits wanted, 1..b; how many calls ask this
-- Returns   {now_us, for each question one, and one for each limit ...}, or 0: ask take.lua about all
--   taken   how many of its calls were admitted, the first ones; -1: ask take.lua about all of them
--   owed    units that the bucket owed before the question; -1: not known
-- Clock     TIME of this Redis, read once
local ARGV, KEYS = ARGV, KEYS -- a local is faster than a global
local from, max_owed = 1577836800000000, 60000000 -- PLAIN_FROM, PLAIN_MAX
local now, count = tonumber(ARGV[1]), tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local at = now - from
if at < 100000000000000 or at > 899000000000000 then return 0 end -- not 15 digits

-- The shortest way, for one question about one bucket that is an integer. The code below
-- would do, but its functions, which Redis creates at every call, take a tenth more time.
local digits = ARGV[6]
if #ARGV == 10 and digits ~= '' then
  local text = redis.pcall('GET', KEYS[1])
  local whole = type(text) == 'string' and #text == 19 and string.sub(text, 16) == digits
  local tat = not text and 0 or whole and tonumber(string.sub(text, 1, 15))
  if tat then
    local owed, calls, each = tat < at and 0 or tat - at, tonumber(ARGV[10]), ARGV[9] * ARGV[3]
    local room = ARGV[5] * ARGV[3] - owed
    if room < calls * each then calls = room < each and 0 or (room - room % each) / each end
    local after = owed + calls * each
    if after <= max_owed then -- else it gets a text, or the clock was set back
      if calls > 0 then
        redis.call('SET', KEYS[1], string.format('%d%s', at + after, digits), 'PX', string.format('%d', after / 1000 + 2001))
      end
      return {now, calls, owed}
    end
  end
end

-- read is how many units a bucket owes; -1: it is not known. Its limit begins at ARGV[limit].
local function read(key, limit)
  local text = redis.pcall('GET', key)
  if not text then return 0 end
  local tat = type(text) == 'string' and tonumber(string.sub(text, 1, 15))
  if not tat then return -1 end
  if #text == 19 and string.sub(text, 16) == ARGV[limit + 3] then
    if tat > at + max_owed then return -1 end -- the clock was set back
    return tat < at and 0 or tat - at
  end
  local rate, frac, written = string.match(text, '^(:.*)%+(%d+)@(%d+)$', 16)
  if rate ~= ARGV[limit + 4] or written * 1000000 > now + 1000000 then return -1 end -- the clock was set back
  return tat < at and 0 or (tat - at) * ARGV[limit + 1] + frac
end

local function save(key, limit, owed)
  local digits, whole, text = ARGV[limit + 3], owed, nil
  if owed <= max_owed and digits ~= '' then
    text = string.format('%d%s', at + owed, digits)
  else
    local r = tonumber(ARGV[limit + 1])
    whole = (owed - owed % r) / r
    text = string.format('%d%s+%d@%d', at + whole, ARGV[limit + 4], owed - whole * r, now / 1000000)
  end
  redis.call('SET', key, text, 'PX', string.format('%d', whole / 1000 + 2001))
end

-- A short way for one question about one bucket of any kind: the tables below take a
-- fourth more time.
if #ARGV == 10 then
  local owed, calls, each = read(KEYS[1], 3), tonumber(ARGV[10]), ARGV[9] * ARGV[3]
  if owed < 0 then return {now, -1, -1} end
  local room = ARGV[5] * ARGV[3] - owed
  if room < calls * each then calls = room < each and 0 or (room - room % each) / each end
  if calls > 0 then save(KEYS[1], 3, owed + calls * each) end
  return {now, calls, owed}
end

local debts, places = {}, #KEYS > count and {} -- units, by place in KEYS; the first place of a key that sets share
for i = 1, #KEYS do
  local key, place = KEYS[i], nil
  if places then
    place = places[key]
    places[key] = place or i
  end
  if not place then debts[i] = read(key, (i - 1) % count * 5 + 3) end
end

local reply, taken, left = {now}, {}, nil -- places of what was taken, and of calls that are left to take.lua
for question = 3 + 5 * count, #ARGV, 3 do
  local first, n, calls = (ARGV[question] - 1) * count, tonumber(ARGV[question + 1]), tonumber(ARGV[question + 2])
  local r = #reply + 1
  for i = 1, count do
    local place = places and places[KEYS[first + i]] or first + i
    local owed, limit = debts[place], 5 * i - 2
    if owed < 0 or left and left[place] then
      calls = -1
    elseif calls > 0 then
      local each = n * ARGV[limit]
      local room = ARGV[limit + 2] * ARGV[limit] - owed
      if room < calls * each then calls = room < each and 0 or (room - room % each) / each end
    end
    reply[r + i] = owed
  end
  reply[r] = calls
  for i = 1, count do
    local place = places and places[KEYS[first + i]] or first + i
    if calls < 0 then
      left = left or {}
      left[place] = true -- calls of one bucket keep their order
    elseif calls > 0 then
      debts[place], taken[place] = debts[place] + calls * n * ARGV[5 * i - 2], true
    end
  end
end
for i = 1, #KEYS do
  if taken[i] then save(KEYS[i], (i - 1) % count * 5 + 3, debts[i]) end
end
return reply
