-- conformance.lua: keep what was counted of the calls of a partition, unless another worker counted some meanwhile.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue, the first partition
-- ARGV[2]   the partition whose calls were counted
-- ARGV[3]   the entry of its events up to which they were counted
-- ARGV[4]   how often the caller knows that calls were counted, of any partition
-- ARGV[5..] four for each write: 'sent', bucket, the calls that it now has besides, 0; 'all', bucket, all its calls,
--           and for how many ms they are kept; 'hours', bucket, the day, and its hours as text; 'page', its number,
--           more of it, and for how many seconds it is kept, '' but for its first text; or 'drop', the number of a page
--           that goes, '', ''
-- Returns   1, or 0 if calls were counted by another worker, and nothing was written
-- Bound: the writes that the caller passes: two for each bucket that the calls of one run of calls.lua changed, of
-- which auditor.go asks for fewer if these are more than 500; two pages, and those that go.
-- Full memory: it does not run: what is counted would grow. The calls stay among the events, and are counted later.
local counted = headgate .. 'counted'
if (read('HGET', counted, '*') or '0') ~= ARGV[4] then return 0 end
plan('HSET', counted, ARGV[2], ARGV[3], '*', int(tonumber(ARGV[4]) + 1))
local days, pages = {}, headgate .. 'arrivals'
for i = 5, #ARGV, 4 do
  local what, bucket, text, more = unpack(ARGV, i, i + 3)
  if what == 'hours' then
    local key = headgate .. 'conformance:' .. text
    plan('HSET', key, bucket, more)
    days[key] = true
  elseif what == 'page' then
    try('APPEND', pages .. ':' .. bucket, text)
    if more ~= '' then
      plan('EXPIRE', pages .. ':' .. bucket, more)
      plan('ZADD', pages, bucket, bucket)
      plan('EXPIRE', pages, more)
    end
  elseif what == 'drop' then
    plan('DEL', pages .. ':' .. bucket)
    plan('ZREM', pages, bucket)
  else
    local key = headgate .. 'sent:' .. bucket
    if what == 'sent' then try('APPEND', key, text) else plan('SET', key, text, 'PX', more) end
  end
end
for key in pairs(days) do plan('EXPIRE', key, 32 * 24 * 3600) end
return 1
