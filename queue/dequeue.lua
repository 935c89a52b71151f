-- dequeue.lua: hand a pending task to a worker that has a handler for it.
--
-- It stands in for asynq's own script, which hands any task to any worker of the
-- queue, and without the other libraries, for it runs once for each job. A task that
-- only has to be put away goes to any worker. One that no worker took for a while goes
-- back to its lane, by way of the retry set: what is pending takes up room.
--
-- KEYS      asynq's pending, paused, active, lease
-- ARGV[1]   end of the lease, Unix seconds
-- ARGV[2]   prefix of the keys of tasks
-- ARGV[3]   kinds that the worker handles, ',KIND,KIND,'
-- Returns   the encoded task, or nil: there is none for this worker
-- A key of another type is a fault of the queue (plan.lua): there is no task then.
-- Bound: it looks at 20 tasks. Where all are for others, and more wait behind them,
-- they go to the other end of the list.
local LOOKS, LEFT_US = 20, 5000000
if redis.call('EXISTS', KEYS[2]) == 1 then return nil end

-- understood tells whether a key had the type that a reply needed.
local function understood(reply, key)
  if type(reply) ~= 'table' or not reply.err then return true end
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then error(reply.err, 0) end
  local faults, time = 'headgate:' .. string.match(key, '{.*}') .. ':faults', redis.call('TIME')
  redis.pcall('HSETNX', faults, 'queue', string.format('%.0f ', time[1] * 1000000 + time[2]) .. reply.err .. ': ' .. key)
  redis.pcall('PEXPIRE', faults, 3600000)
  return false
end

local ids = redis.pcall('LRANGE', KEYS[1], -LOOKS, -1)
if not understood(ids, KEYS[1]) then return nil end

-- kind_of reads the kind that asynq writes first, as field 1: a tag, its length below
-- 128, and the text.
local function kind_of(msg)
  local length = string.byte(msg, 1) == 10 and string.byte(msg, 2) or 128
  return length < 128 and string.sub(msg, 3, 2 + length)
end

local function take(i, msg)
  -- A write of another type does nothing.
  if not understood(redis.pcall('LLEN', KEYS[3]), KEYS[3]) or not understood(redis.pcall('ZADD', KEYS[4], ARGV[1], ids[i]), KEYS[4]) then
    return nil
  end
  if i == #ids then
    redis.call('RPOPLPUSH', KEYS[1], KEYS[3])
  else
    redis.call('LPUSH', KEYS[3], ids[i])
    redis.call('LREM', KEYS[1], -1, ids[i])
  end
  redis.call('HSET', ARGV[2] .. ids[i], 'state', 'active')
  return msg
end

local now
local back, gone = {}, {} -- tasks that nobody took, and that asynq's tools deleted
for i = #ids, 1, -1 do
  local key = ARGV[2] .. ids[i]
  local msg = redis.pcall('HGET', key, 'msg')
  local kind = type(msg) == 'string' and kind_of(msg)
  if kind and string.find(ARGV[3], ',' .. kind .. ',', 1, true) then
    return take(i, msg)
  elseif kind then
    if not now then
      local time = redis.call('TIME')
      now = time[1] * 1000000 + time[2]
    end
    local task = redis.call('HMGET', key, 'hg_done', 'hg_crashes', 'hg_deadline', 'pending_since')
    local deadline = tonumber(task[3] or 0) or 0
    if task[1] or (tonumber(task[2] or 0) or 0) >= 3 or (deadline > 0 and deadline <= now) then
      return take(i, msg)
    end
    if (tonumber(task[4] or 0) or 0) / 1000 < now - LEFT_US then back[#back + 1] = ids[i] end
  elseif not msg and redis.call('EXISTS', key) == 0 then
    gone[#gone + 1] = ids[i]
  end
end
local retry = string.gsub(KEYS[1], 'pending$', 'retry')
for _, id in ipairs(back) do
  if not understood(redis.pcall('ZADD', retry, math.floor(now / 1000000), id), retry) then return nil end
  redis.call('LREM', KEYS[1], -1, id)
  redis.call('HSET', ARGV[2] .. id, 'state', 'retry')
end
for _, id in ipairs(gone) do redis.call('LREM', KEYS[1], -1, id) end
if #back == 0 and #gone == 0 and #ids == LOOKS and redis.call('LLEN', KEYS[1]) > LOOKS then
  for _ = 1, LOOKS do redis.call('RPOPLPUSH', KEYS[1], KEYS[1]) end
end
return nil
