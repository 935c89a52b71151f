-- rewake.lua: look again at lanes that wait under limits that have changed.
--
-- Their due times were computed under the limits of before: a lane that waited
-- for tomorrow's quota must not wait for it when the quota was raised.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- Returns   how many lanes were put forward, at most 500; 0: none is left
local now = clock()
local far = redis.call('ZRANGEBYSCORE', headgate .. 'waiting', '(' .. int(now + 1000000), '+inf', 'LIMIT', 0, 500)
for _, lane in ipairs(far) do redis.call('ZADD', headgate .. 'waiting', int(now), lane) end
return #far
