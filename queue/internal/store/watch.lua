-- watch.lua: choose the worker that looks for dead workers of a queue: one at a time.
--
-- KEYS[1]   headgate:{queue}:watcher: id of the worker that watches
-- ARGV[1]   queue
-- ARGV[2]   id of the worker that asks
-- ARGV[3]   lasts_ms: for how long it watches unless it asks again
-- ARGV[4]   1: it asks for calls, too
-- Returns   0: the caller watches; -1: it does, and no call of the queue is under way; else for how long another worker
--           does, in ms
-- Full memory: it runs (allow-oom), as the renewals of leases do: it writes one key of a queue
-- again and again.
--
-- It runs every two seconds for each partition of an idle queue, so it does without plan.lua and what is behind it,
-- which would take most of its time.
local watcher = redis.pcall('GET', KEYS[1])
-- A value of another type is replaced, and so is a watch that lasts longer than it can:
-- the clock was set back, or something else wrote it.
if type(watcher) == 'string' and watcher ~= ARGV[2] then
  local left = redis.call('PTTL', KEYS[1])
  if left >= 0 and left <= tonumber(ARGV[3]) then return math.max(left, 1) end
end
local idle = ARGV[4] and redis.call('EXISTS', asynq .. 'active', asynq .. 'lease') == 0
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return idle and -1 or 0
