-- periodic_look.lua: the time, and until when workers have looked for ticks.
--
-- KEYS[1]   headgate:periodic:fired, see periodic.lua
-- ARGV[1]   Unix second until which the caller has looked for ticks that are due; 0: none yet
-- Returns   {Unix second, µs within it, second until which any worker has looked}
-- Clock     TIME of this Redis: one clock for all workers, also in a Cluster
local time = redis.call('TIME')
local now = tonumber(time[1])
-- A text that is not a number counts as none.
local before = tonumber(string.match(field(''), '^%d+$') or 0)
-- A second in the future was written before the clock was set back.
local done = math.min(math.max(before, tonumber(ARGV[1])), now)
if done ~= before then redis.call('HSET', KEYS[1], '', string.format('%d', done)) end
return {now, tonumber(time[2]), done}
