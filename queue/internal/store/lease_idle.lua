-- lease_idle.lua: whether a partition still has no jobs, and nothing to ask for of leased limits.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- Returns   in how many µs it may have something to ask for though dispatch announces nothing; 0: run lease_ask.lua
local next_ask = redis.pcall('HGET', 'headgate:{' .. ARGV[1] .. '}:vtime', '*idle')
if type(next_ask) ~= 'string' or not tonumber(next_ask) or not no_jobs() then return 0 end
return math.max(0, next_ask - clock())
