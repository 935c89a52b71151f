-- permits.lua: reserve permits of one concurrency limit cheaply.
--
-- Its decisions are exactly those of take.lua, and the states that it leaves. A bucket that holds something
-- else, or whose clock was set back, is left to take.lua, and nothing is changed for its calls. Like
-- plain.lua it does not use the library, nor functions of its own.
--
-- KEYS      buckets: one for every distinct key
-- ARGV[1]   now_us: the caller's clock, for tests; '' for TIME of this Redis
-- ARGV[2]   b, calls in flight
-- ARGV[3]   how long a permit lives without being renewed, µs
-- ARGV[4..] five for each question, as of take.lua, those about one key one after the other
-- Returns   as windows.lua
-- Clock     TIME of this Redis, read once
local now, b, lease = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local lives, ends = string.format('(%d', now), string.format('%d', now + lease)

local reply, writes = {now}, {} -- of each key that is written: its name, and what ZADD is given
local question = 4
while question <= #ARGV do
  local which = tonumber(ARGV[question])
  local key, added, wait, reset = KEYS[which], nil, 0, 0
  local held = redis.pcall('ZCOUNT', key, lives, '+inf')
  -- No permit ends after a lease, unless the clock was set back, or the lease shortened.
  local known = type(held) == 'number' and not redis.call('ZREVRANGEBYSCORE', key, '+inf', string.format('(%d', now + lease + 1000000), 'LIMIT', 0, 1)[1]
  repeat
    local taken = -1
    if known and held < b then
      added = added or {}
      added[#added + 1], added[#added + 2] = ends, ARGV[question + 3]
      taken, held, reset = 1, held + 1, lease
    elseif known then
      taken = 0
      if wait == 0 then
        local first = redis.call('ZRANGEBYSCORE', key, lives, '+inf', 'WITHSCORES', 'LIMIT', held - b, 1)
        wait = math.min((tonumber(first[2]) or math.huge) - now, lease)
        if not added then reset = math.max(0, redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2] - now) end
      end
    end
    local r = #reply
    reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = taken, wait, known and math.max(0, b - held) or 0, reset
    question = question + 5
  until ARGV[question] ~= ARGV[question - 5]
  if added then writes[#writes + 1], writes[#writes + 2] = key, added end
end
for k = 1, #writes, 2 do
  local key, ms = writes[k], math.ceil(lease / 1000) + 2000
  redis.call('ZADD', key, unpack(writes[k + 1]))
  redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%d', now))
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end
return reply
