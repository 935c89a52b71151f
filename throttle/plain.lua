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
-- Returns   {now_us, two for each call ...}, or 0: ask take.lua about all
--   owed    when taken, units until the limit is full again; when refused, -units until
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

-- read is how many units a bucket owes; nil: it is not known.
local function read(key, r, digits, rate)
  local text = redis.pcall('GET', key)
  if not text then return 0 end
  if type(text) ~= 'string' then return nil end
  local tat = tonumber(string.sub(text, 1, 15))
  if not tat then return nil end
  if #text == 19 and string.sub(text, 16) == digits then
    local owed = from + tat - now
    if owed > max_owed then return nil end -- the clock was set back
    return owed > 0 and owed or 0
  end
  local head = 15 + #rate
  if string.sub(text, 16, head) ~= rate then return nil end
  local frac, at = string.match(text, '^%+(%d+)@(%d+)$', head + 1)
  if not at or at * 1000000 > now + 1000000 then return nil end -- the clock was set back
  local owed = from + tat - now
  if owed < 0 then return 0 end
  return owed * r + frac
end

local function save(key, owed, r, digits, rate)
  local whole, text = owed, nil
  if owed <= max_owed and digits ~= '' then
    text = string.format('%d%s', now - from + owed, digits)
  else
    whole = math.floor(owed / r)
    text = string.format('%d%s+%d@%d', now - from + whole, rate, owed - whole * r, now / 1000000)
  end
  redis.call('SET', key, text, 'PX', string.format('%d', whole / 1000 + 2001))
end

-- A short way for one call of one limit. The code below would do, but its tables and
-- loops take a fourth more time.
if #ARGV == 10 and ARGV[10] == '1' then
  local key, p, r, n = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[9])
  local owed = read(key, r, ARGV[6], ARGV[7])
  if not owed then return 0 end
  local wait = owed - (tonumber(ARGV[5]) - n) * p
  if wait > 0 then return {now, -wait, 1} end
  owed = owed + n * p
  save(key, owed, r, ARGV[6], ARGV[7])
  return {now, owed, 1}
end

local ps, rs, bs, digits, rates = {}, {}, {}, {}, {}
for i = 1, count do
  local at = 5 * i - 2
  ps[i], rs[i], bs[i], digits[i], rates[i] = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4]
end
local debts, were = {}, {} -- by key; false: not known
for i = 1, #KEYS do
  local key = KEYS[i]
  if debts[key] == nil then
    local which = (i - 1) % count + 1
    local owed = read(key, rs[which], digits[which], rates[which]) or false
    debts[key], were[key] = owed, owed
  end
end

local reply, left_over = {now}, {}
for at = 3 + 5 * count, #ARGV, 3 do
  local first, n = (tonumber(ARGV[at]) - 1) * count, tonumber(ARGV[at + 1])
  for _ = 1, tonumber(ARGV[at + 2]) do
    local wait, units, shown, unknown = 0, 0, 0, nil
    for i = 1, count do
      local key = KEYS[first + i]
      local owed = debts[key]
      if left_over[key] then
        unknown = unknown or 0
      elseif not owed then
        unknown = i
      else
        local u = owed - (bs[i] - n) * ps[i]
        local w = math.ceil(u / rs[i]) -- µs
        if w > wait then wait, units, shown = w, u, i end
      end
    end
    local owed = -units
    if unknown then
      for i = 1, count do left_over[KEYS[first + i]] = true end -- calls of one bucket keep their order
      owed, shown = 0, unknown
    elseif wait == 0 then
      local least
      for i = 1, count do
        local key = KEYS[first + i]
        local after = debts[key] + n * ps[i]
        debts[key] = after
        local left = bs[i] - math.ceil(after / ps[i])
        if not least or left < least then least, owed, shown = left, after, i end
      end
    end
    local at_reply = #reply
    reply[at_reply + 1], reply[at_reply + 2] = owed, shown
  end
end
for i = 1, #KEYS do
  local key = KEYS[i]
  local owed = debts[key]
  if owed and owed > were[key] then
    local which = (i - 1) % count + 1
    save(key, owed, rs[which], digits[which], rates[which])
    were[key] = owed
  end
end
return reply
