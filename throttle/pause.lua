-- pause.lua: pause a bucket for a time, or end its pause.
--
-- KEYS[1]   bucket
-- ARGV[1]   now_us: the caller's clock, for tests; '' for TIME of this Redis
-- ARGV[2..] six for the limit (limit_read)
-- ARGV[8]   for_us: how long from now; 0 ends a pause
-- ARGV[9]   reason
-- Returns   1
-- Clock     TIME of this Redis, read once
local now = limit_clock(ARGV[1])
local limit, length = limit_read(2), tonumber(ARGV[8])
local b = limit_open(limit, KEYS[1], now)
if length > 0 then
  limit_left(limit, b, now)
  -- The longer of two pauses holds, with its reason.
  if now + length <= b.pause then return 1 end
  b.pause, b.why, b.mended = now + length, ARGV[9], true
  limit_save(b, now)
  return 1
end
if b.pause <= now then return 1 end
b.pause = now -- from here on as after any pause
limit_left(limit, b, now)
b.mended = true
limit_save(b, now)
return 1
