-- renew.lua: renew the permits of calls that are in flight.
--
-- KEYS      sets of permits, one for each permit
-- ARGV[1]   now_us: the caller's clock, for tests; '' for TIME of this Redis
-- ARGV[2..] for each permit its id and its lease, µs
-- Returns   for each permit 1, or 0 if it has lapsed: it is not renewed then
-- Clock     TIME of this Redis, read once
local now = limit_clock(ARGV[1])
local results = {}
-- A key that became something else has no permits, and must not keep the permits behind it from being renewed.
for i, key in ipairs(KEYS) do results[i] = (tonumber(redis.pcall('ZSCORE', key, ARGV[2 * i])) or 0) > now and 1 or 0 end
for i, key in ipairs(KEYS) do
  local id, lease = ARGV[2 * i], tonumber(ARGV[2 * i + 1])
  if results[i] == 1 then
    redis.call('ZADD', key, string.format('%.0f', now + lease), id)
    local ms = math.ceil(lease / 1000) + 2000
    if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
  end
end
return results
