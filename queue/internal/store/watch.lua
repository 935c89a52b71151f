-- watch.lua: choose the worker that looks for dead workers of a queue: one at a time.
--
-- KEYS[1]   headgate:{queue}:watcher: id of the worker that watches
-- ARGV[1]   queue
-- ARGV[2]   id of the worker that asks
-- ARGV[3]   lasts_ms: for how long it watches unless it asks again
-- Returns   0: the caller watches; else for how long another worker does, in ms
-- Full memory: it runs (allow-oom), as the renewals of leases do: it writes one key of a queue
-- again and again.
local watcher
-- A value of another type is replaced, and so is a watch that lasts longer than it can:
-- the clock was set back, or something else wrote it.
attempt(KEYS[1], function() watcher = read('GET', KEYS[1]) end)
if watcher and watcher ~= ARGV[2] then
  local left = read('PTTL', KEYS[1])
  if left >= 0 and left <= tonumber(ARGV[3]) then return math.max(left, 1) end
end
plan('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 0
