-- periodic_set.lua: add or change a periodic job, or pause an existing one.
--
-- KEYS[1]   headgate:periodic
-- ARGV[1]   id
-- ARGV[2]   paused: 'true' or 'false'; with ARGV[3], 'false' leaves a paused one paused
-- ARGV[3]   the entry's JSON after '{"since":N,"paused":B,', or '' to keep it
-- ARGV[4]   the beginning of ARGV[3] that is its schedule
-- Returns   1; 0 if there is no entry to keep
-- Clock     TIME of this Redis
-- The field '' counts changes, so that workers know when to read again.
local id, paused, body, schedule = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local old = redis.call('HGET', KEYS[1], id) or ''
local since, was, kept = string.match(old, '^{"since":(%d+),"paused":(%a+),(.*)$')
-- A program that declares its entries when it starts does not end the pause of an operator.
if body ~= '' and was == 'true' then paused = was end
if body == '' then
  if not kept then return 0 end
  body, schedule = kept, ''
end
-- Ticks before a change of the schedule, or during a pause, were not missed.
local same = kept and string.sub(kept, 1, #schedule) == schedule
if not same or (was == 'true' and paused == 'false') then
  since = redis.call('TIME')[1]
end
local entry = '{"since":' .. since .. ',"paused":' .. paused .. ',' .. body
if entry ~= old then
  redis.call('HINCRBY', KEYS[1], '', 1) -- first, as it raises if the count is not a number
  redis.call('HSET', KEYS[1], id, entry)
end
return 1
