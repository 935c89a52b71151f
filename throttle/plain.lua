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
-- ARGV[3..] three for each limit: p, µs that one permit takes; b, permits of a full
--           bucket; code of p. Then three for each question: which set of keys; n,
--           permits wanted, 1..b; how many calls ask this
-- Returns   {now_us, two for each call ...}, or 0: ask take.lua about all
--   owed    when taken, µs until the limit is full again; when refused, -µs until
--           the same call would be admitted; 0: ask take.lua
--   limit   the one that owed describes: the one that refused, or has the fewest permits
--           left, or is not known; 0: an earlier call that is not decided shares a bucket
-- Clock     TIME of this Redis, read once
local from, max_owed = 1577836800000000, 60000000 -- PLAIN_FROM, PLAIN_MAX
local now, count = tonumber(ARGV[1]), tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
if now < from + 100000000000000 or now > from + 899000000000000 then return 0 end -- not 15 digits

-- read is the moment at which a bucket is full, not before now; nil: it is not known.
local function read(key, code)
  local text = redis.pcall('GET', key)
  if not text then return now end
  if type(text) ~= 'string' or #text ~= 19 or string.sub(text, 16) ~= code then return nil end
  local tat = from + string.sub(text, 1, 15)
  if tat > now + max_owed then return nil end -- the clock was set back
  if tat < now then tat = now end
  return tat
end

local function save(key, tat, code)
  redis.call('SET', key, string.format('%d%s', tat - from, code), 'PX', string.format('%d', (tat - now) / 1000 + 2001))
end

-- A short way for one call of one limit. The code below would do, but its tables and
-- loops take a fourth more time.
if #ARGV == 8 and ARGV[8] == '1' then
  local key, p, b, code, n = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[7])
  local tat = read(key, code)
  if not tat then return 0 end
  local wait = tat - (b - n) * p - now
  if wait > 0 then return {now, -wait, 1} end
  tat = tat + n * p
  save(key, tat, code)
  return {now, tat - now, 1}
end

local ps, bs, codes = {}, {}, {}
for i = 1, count do
  ps[i], bs[i], codes[i] = tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1]), ARGV[3 * i + 2]
end
local tats, were = {}, {} -- by key; false: not known
for i = 1, #KEYS do
  local key = KEYS[i]
  if tats[key] == nil then
    local tat = read(key, codes[(i - 1) % count + 1]) or false
    tats[key], were[key] = tat, tat
  end
end

local reply, left_over = {now}, {}
for at = 3 + 3 * count, #ARGV, 3 do
  local first, n = (tonumber(ARGV[at]) - 1) * count, tonumber(ARGV[at + 1])
  for _ = 1, tonumber(ARGV[at + 2]) do
    local wait, shown, unknown = 0, 0, nil
    for i = 1, count do
      local key = KEYS[first + i]
      local tat = tats[key]
      if left_over[key] then
        unknown = unknown or 0
      elseif not tat then
        unknown = i
      else
        local w = tat - (bs[i] - n) * ps[i] - now
        if w > wait then wait, shown = w, i end
      end
    end
    local owed = -wait
    if unknown then
      for i = 1, count do left_over[KEYS[first + i]] = true end -- calls of one bucket keep their order
      owed, shown = 0, unknown
    elseif wait == 0 then
      local least
      for i = 1, count do
        local key = KEYS[first + i]
        local tat = tats[key] + n * ps[i]
        tats[key] = tat
        local left = bs[i] - math.ceil((tat - now) / ps[i])
        if not least or left < least then least, owed, shown = left, tat - now, i end
      end
    end
    local r = #reply
    reply[r + 1], reply[r + 2] = owed, shown
  end
end
for i = 1, #KEYS do
  local key = KEYS[i]
  local tat = tats[key]
  if tat and tat > were[key] then
    save(key, tat, codes[(i - 1) % count + 1])
    were[key] = tat
  end
end
return reply
