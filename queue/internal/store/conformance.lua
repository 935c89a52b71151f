-- conformance.lua: keep what was counted of the calls of a partition, unless another worker counted them.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue, the first partition
-- ARGV[2]   the partition whose calls were counted
-- ARGV[3]   the entry of its events up to which they were counted before, 0-0 for none, and ARGV[4] up to which now
-- ARGV[5..] four for each write: 'sent', bucket, the calls that it now has besides, 0; 'all', bucket, all its calls,
--           and for how many ms they are kept; or 'hours', bucket, the day, and its hours as text
-- Returns   1, or 0 if they were counted by another worker, and nothing was written
-- Bound: the writes that the caller passes: two for each bucket that the calls of one run of calls.lua changed, of
-- which auditor.go asks for fewer if these are more than 500.
-- Full memory: it does not run: what is counted would grow. The calls stay among the events, and are counted later.
local counted = headgate .. 'counted'
if (read('HGET', counted, ARGV[2]) or '0-0') ~= ARGV[3] then return 0 end
plan('HSET', counted, ARGV[2], ARGV[4])
local days = {}
for i = 5, #ARGV, 4 do
  local what, bucket, text, more = unpack(ARGV, i, i + 3)
  if what == 'hours' then
    local key = headgate .. 'conformance:' .. text
    plan('HSET', key, bucket, more)
    days[key] = true
  else
    local key = headgate .. 'sent:' .. bucket
    if what == 'sent' then try('APPEND', key, text) else plan('SET', key, text, 'PX', more) end
  end
end
for key in pairs(days) do plan('EXPIRE', key, 32 * 24 * 3600) end
return 1
