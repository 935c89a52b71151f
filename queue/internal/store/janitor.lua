-- janitor.lua: delete completed jobs whose retention is over.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   most: the maximum number of jobs in one call
-- Returns   how many jobs were deleted or, if they are damaged, put off
-- Bound: it deletes at most `most` jobs.
-- Full memory: it runs (allow-oom), as it deletes.
without_queue = 0
local completed, now, n = asynq .. 'completed', math.floor(clock() / 1000000), 0
local LATER_S = 3600 -- until a damaged job is looked at again
for _, id in ipairs(read('ZRANGEBYSCORE', completed, '-inf', int(now), 'LIMIT', 0, tonumber(ARGV[2]))) do
  local understood = attempt('job ' .. id, function()
    local state = read('HGET', task_key(id), 'state')
    if state == 'completed' then
      forget(id)
    elseif state or read('EXISTS', task_key(id)) == 1 then
      error('it is kept after its end, and its state is ' .. string.format('%q', state or ''), 0)
    end
    plan('ZREM', completed, id)
  end)
  -- A damaged job stays, but not ahead of all others.
  if not understood then plan('ZADD', completed, int(now + LATER_S), id) end
  n = n + 1
end
return n
