-- settle.lua: end a reservation whose cost differs from what was reserved. It gives back or charges the
-- difference, and frees the permits of concurrency limits.
--
-- KEYS      bucket of each limit
-- ARGV[1]   now_us: the caller's clock, for tests; '' for TIME of this Redis
-- ARGV[2]   limits: how many
-- ARGV[3..] six for each limit (limit_read), then:
--   id      of the call
--   n       permits reserved
--   actual  permits used, >= 0, not n
--   slot    the moment of the reservation, µs
--   marks   of the reservation in each bucket (limit_mark)
-- Returns   1
-- Clock     TIME of this Redis, read once
local now, count = limit_clock(ARGV[1]), tonumber(ARGV[2])
local at = 3 + 6 * count
local id, n, actual, slot = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
local buckets, permits = {}, {}
for i = 1, count do
  local limit = limit_read(3 + (i - 1) * 6)
  if limit.a == 'cc' then
    permits[#permits + 1] = KEYS[i]
  else
    local b = limit_open(limit, KEYS[i], now)
    if actual < n then
      limit_refund(limit, b, now, slot, n - actual, tonumber(ARGV[at + 3 + i]))
    else
      limit_charge(limit, b, now, actual - n)
    end
    buckets[#buckets + 1] = b
  end
end
-- Nothing raises from here on.
for _, b in ipairs(buckets) do limit_save(b, now) end
for _, key in ipairs(permits) do redis.pcall('ZREM', key, id) end -- it may have become another algorithm's
return 1
