-- take.lua: take n permits from every limit, or from none.
--
-- KEYS[i]   bucket of limit i; one key may stand for several limits
-- ARGV[1]   n: permits wanted, >= 1
-- ARGV[2]   within_us: longest delay that is accepted; 0: now or not at all
-- ARGV[3]   now_us: the caller's clock, for tests; '' for TIME of this Redis
-- ARGV[4..] six for each limit: a, p, r, b, ahead_us, and w or the calendar's
--           window starts joined by ','   (see limits.lua)
-- Returns   {taken 1|0, binding limit 0.., delay_us, left, now_us}
--           taken -1: n can never be admitted by the limit named.
--           delay_us: how long until the slot, or until the same call would be admitted.
-- Clock     TIME of this Redis, read once
-- Integers only: Redis truncates a Lua number on its way out.
local n, within, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local limits, states, mended = {}, {}, {}
for i = 1, #KEYS do
  local at = 4 + (i - 1) * 6
  local limit = {
    a = ARGV[at], p = tonumber(ARGV[at + 1]), r = tonumber(ARGV[at + 2]),
    b = tonumber(ARGV[at + 3]), ahead = tonumber(ARGV[at + 4]),
  }
  if limit.a == 'fw' then
    limit.w = tonumber(ARGV[at + 5])
    if not limit.w then
      limit.c = {}
      for start in string.gmatch(ARGV[at + 5], '%d+') do limit.c[#limit.c + 1] = tonumber(start) end
    end
  end
  limits[i] = limit
  local key = KEYS[i]
  if states[key] == nil then
    states[key] = redis.call('GET', key)
    local state, px = limit_mend(limit, states[key], now)
    if state then states[key], mended[key] = state, px end
  end
end

-- The moment at which all admit: each round moves it to the latest answer, and a
-- round that moves nothing ends it. It only grows, so it ends.
local t, binding = now, 0
repeat
  local moved = false
  for i = 1, #KEYS do
    local e = limit_earliest(limits[i], states[KEYS[i]], now, t, n)
    if not e then return {-1, i, 0, 0, now} end
    if e > t then t, binding, moved = e, i, true end
  end
until not moved

local refused = t - now > within
if not refused then
  for i = 1, #KEYS do
    if limit_full(limits[i], states[KEYS[i]], now, t, n) then
      refused, binding = true, i
      break
    end
  end
end
if refused then
  -- A refusal writes nothing, but for the first one to see a changed rate or a
  -- clock that was set back: what is owed would not drain as it should.
  for key, px in pairs(mended) do
    redis.call('SET', key, states[key], 'PX', string.format('%.0f', px))
  end
  return {0, binding, t - now, binding > 0 and limit_left(limits[binding], states[KEYS[binding]], now) or 0, now}
end

local ttl = {}
for i = 1, #KEYS do
  states[KEYS[i]], ttl[KEYS[i]] = limit_commit(limits[i], states[KEYS[i]], now, t, n)
end
local left = -1
for i = 1, #KEYS do
  local key = KEYS[i]
  if ttl[key] then
    redis.call('SET', key, states[key], 'PX', string.format('%.0f', ttl[key]))
    ttl[key] = nil
  end
  local rest = limit_left(limits[i], states[key], now)
  if left < 0 or rest < left then left = rest end
end
return {1, binding, t - now, left, now}
