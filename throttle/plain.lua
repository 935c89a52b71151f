-- plain.lua: the commonest decisions, cheaply.
--
-- Of token buckets, or leaky ones that police, whose states are plain (limits.lua)
-- or absent. It decides as take.lua does, to the last bit; a call one of whose buckets
-- it does not know it leaves to that, untouched. It stands without the library,
-- whose functions Redis makes anew at every call: a third of the time.
--
-- KEYS      buckets: one for each limit, for every distinct set of keys
-- ARGV[1]   p, µs that one permit of the first limit takes
-- ARGV[2]   b, permits of its full bucket
-- ARGV[3]   code of p
-- ARGV[4]   n: permits wanted of KEYS[1], 1..b; or '' for what follows ARGV[5]
-- ARGV[5]   now_us: the caller's clock, for tests; '' or none for TIME of this Redis
-- ARGV[6..] limits: how many; p, b and code of each but the first; then three for
--           each question: which set of keys, n, and how many calls ask it
-- Returns   {now_us, two for each call ...}, or 0: ask take.lua about all
--   owed    when taken, µs until the limit is full again; when refused, -µs until
--           the same call would be admitted; 0: ask take.lua
--   limit   of which that is said: which refused, or has the fewest permits left, or
--           is not known; 0: an earlier call that is not decided shares a bucket
-- Clock     TIME of this Redis, read once
local from, most = 1577836800000000, 60000000 -- PLAIN_FROM, PLAIN_MOST
local p, b, code, n, now = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
if now < from + 100000000000000 or now > from + 899000000000000 then return 0 end -- not 15 digits

if n then
  local key, tat = KEYS[1], now
  local text = redis.pcall('GET', key)
  if text then
    if type(text) ~= 'string' or #text ~= 19 or string.sub(text, 16) ~= code then return 0 end
    tat = from + string.sub(text, 1, 15)
    if tat > now + most then return 0 end -- the clock was set back
    if tat < now then tat = now end
  end
  local wait = tat - (b - n) * p - now
  if wait > 0 then return {now, -wait, 1} end
  tat = tat + n * p
  redis.call('SET', key, string.format('%d%s', tat - from, code), 'PX', string.format('%d', (tat - now) / 1000 + 2001))
  return {now, tat - now, 1}
end

local count = tonumber(ARGV[6])
local ps, bs, codes = {p}, {b}, {code}
for i = 2, count do
  local at = 7 + (i - 2) * 3
  ps[i], bs[i], codes[i] = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), ARGV[at + 2]
end
local tats, were, place, known = {}, {}, {}, {} -- place: where a key first stands
for i = 1, #KEYS do
  local key = KEYS[i]
  place[i] = known[key] or i
  if not known[key] then
    known[key] = i
    local text, tat = redis.pcall('GET', key), now
    if text then
      if type(text) ~= 'string' or #text ~= 19 or string.sub(text, 16) ~= codes[(i - 1) % count + 1] then
        tat = nil
      else
        tat = from + string.sub(text, 1, 15)
        if tat > now + most then tat = nil elseif tat < now then tat = now end
      end
    end
    tats[i], were[i] = tat, tat
  end
end
local reply, r, left_over = {now}, 1, {}
for at = 7 + (count - 1) * 3, #ARGV, 3 do
  local base, wanted = (tonumber(ARGV[at]) - 1) * count, tonumber(ARGV[at + 1])
  for _ = 1, tonumber(ARGV[at + 2]) do
    local wait, shown, unknown = 0, 0, nil
    for i = 1, count do
      local at_key = place[base + i]
      local tat = tats[at_key]
      if left_over[at_key] then
        unknown = unknown or 0
      elseif not tat then
        unknown = i
      else
        local w = tat - (bs[i] - wanted) * ps[i] - now
        if w > wait then wait, shown = w, i end
      end
    end
    if unknown then
      for i = 1, count do left_over[place[base + i]] = true end -- calls of one bucket keep their order
      reply[r + 1], reply[r + 2] = 0, unknown
    elseif shown > 0 then
      reply[r + 1], reply[r + 2] = -wait, shown
    else
      local least, owed
      for i = 1, count do
        local at_key = place[base + i]
        local tat = tats[at_key] + wanted * ps[i]
        tats[at_key] = tat
        local left = bs[i] - math.ceil((tat - now) / ps[i])
        if not least or left < least then least, owed, shown = left, tat - now, i end
      end
      reply[r + 1], reply[r + 2] = owed, shown
    end
    r = r + 2
  end
end
for i = 1, #KEYS do
  local tat = tats[i]
  if tat and tat > were[i] then
    redis.call('SET', KEYS[i], string.format('%d%s', tat - from, codes[(i - 1) % count + 1]), 'PX', string.format('%d', (tat - now) / 1000 + 2001))
  end
end
return reply
