-- dequeue.lua: hand a pending task to a worker that has a handler for it.
--
-- It stands in for asynq's own script, which hands any task to any worker of the
-- queue, and without the other libraries, for it runs once for each job.
--
-- KEYS      asynq's pending, paused, active, lease
-- ARGV[1]   end of the lease, Unix seconds
-- ARGV[2]   prefix of the keys of tasks
-- ARGV[3]   kinds that the worker handles, ',KIND,KIND,'
-- Returns   the encoded task, or nil: there is none for this worker
-- Bound: 20 tasks that are for others go to the other end of the list, out of the way.
if redis.call('EXISTS', KEYS[2]) == 1 then return nil end
for _ = 1, 20 do
  local id = redis.call('LINDEX', KEYS[1], -1)
  if not id then return nil end
  local key = ARGV[2] .. id
  local msg = redis.pcall('HGET', key, 'msg')
  local kind
  if type(msg) == 'string' then
    -- asynq writes the kind first, as field 1: a tag, its length below 128, and the text.
    kind = string.byte(msg, 1) == 10 and string.byte(msg, 2) < 128 and string.sub(msg, 3, 2 + string.byte(msg, 2))
  end
  if kind and string.find(ARGV[3], ',' .. kind .. ',', 1, true) then
    redis.call('LLEN', KEYS[3]) -- raises before anything is written
    redis.call('ZADD', KEYS[4], ARGV[1], id)
    redis.call('RPOPLPUSH', KEYS[1], KEYS[3])
    redis.call('HSET', key, 'state', 'active')
    return msg
  elseif not msg and redis.call('EXISTS', key) == 0 then
    redis.call('RPOP', KEYS[1]) -- asynq's tools deleted the task
  else
    redis.call('RPOPLPUSH', KEYS[1], KEYS[1])
  end
end
return nil
