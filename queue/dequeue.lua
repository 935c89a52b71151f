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
-- Bound: it looks at 20 tasks. Where all are for others, and more wait behind them,
-- they go to the other end of the list.
local LOOKS = 20
if redis.call('EXISTS', KEYS[2]) == 1 then return nil end
local ids = redis.call('LRANGE', KEYS[1], -LOOKS, -1)
for i = #ids, 1, -1 do
  local key = ARGV[2] .. ids[i]
  local msg = redis.pcall('HGET', key, 'msg')
  if type(msg) == 'string' then
    -- asynq writes the kind first, as field 1: a tag, its length below 128, and the text.
    local length = string.byte(msg, 1) == 10 and string.byte(msg, 2) or 128
    local kind = length < 128 and string.sub(msg, 3, 2 + length)
    if kind and string.find(ARGV[3], ',' .. kind .. ',', 1, true) then
      redis.call('LLEN', KEYS[3]) -- raises before anything is written
      redis.call('ZADD', KEYS[4], ARGV[1], ids[i])
      if i == #ids then
        redis.call('RPOPLPUSH', KEYS[1], KEYS[3])
      else
        redis.call('LPUSH', KEYS[3], ids[i])
        redis.call('LREM', KEYS[1], -1, ids[i])
      end
      redis.call('HSET', key, 'state', 'active')
      return msg
    end
  elseif not msg and redis.call('EXISTS', key) == 0 then
    redis.call('LREM', KEYS[1], -1, ids[i]) -- asynq's tools deleted the task
  end
end
if #ids == LOOKS and redis.call('LLEN', KEYS[1]) > LOOKS then
  for _ = 1, LOOKS do redis.call('RPOPLPUSH', KEYS[1], KEYS[1]) end
end
return nil
