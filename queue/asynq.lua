-- asynq.lua: all that our scripts do to asynq's own keys.
--
-- A library in front of every script of ours, whose ARGV[1] is the queue. The
-- layout is asynq v0.26's (unchanged since v0.23); its contract test is what a
-- new version of asynq has to pass. Keys are built from the queue's name, as
-- asynq's scripts do: all of a queue's keys share its hash tag.
--
--   t:<id>              hash of a task: msg, state, group, pending_since; ours begin with hg_
--   pending, active     lists of ids: LPUSH on the left, taken on the right
--   scheduled, retry    sorted sets of ids by due time in whole Unix seconds
--   lease               sorted set of the active ids by the end of their lease, Unix seconds
--   g:<group>, groups   a group's ids, and the set of all groups: our lanes. asynq only
--                       lists them, so our scores are µs: first in, first out
--                       within a second too.
local asynq = 'asynq:{' .. ARGV[1] .. '}:'

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function int(number) return string.format('%.0f', number) end

local function task_key(id) return asynq .. 't:' .. id end

-- varint is a number in protobuf's form, for the few fields that we append.
local function varint(n)
  local text = ''
  while n >= 128 do
    text, n = text .. string.char(128 + n % 128), math.floor(n / 128)
  end
  return text .. string.char(n)
end

-- with_group appends group_key (field 14) to an encoded task message: the lane
-- depends on the limits in force, which only the script sees.
local function with_group(msg, lane)
  return msg .. string.char(114) .. varint(#lane) .. lane
end

local function lane_push(lane, id, score)
  redis.call('ZADD', asynq .. 'g:' .. lane, int(score), id)
  redis.call('SADD', asynq .. 'groups', lane)
end

local function lane_head(lane)
  local head = redis.call('ZRANGE', asynq .. 'g:' .. lane, 0, 0, 'WITHSCORES')
  return head[1], tonumber(head[2])
end

-- lane_tail is the score of the last job; lane_from the first one from a score on.
local function lane_tail(lane)
  return tonumber(redis.call('ZRANGE', asynq .. 'g:' .. lane, -1, -1, 'WITHSCORES')[2])
end

local function lane_from(lane, score)
  local first = redis.call('ZRANGEBYSCORE', asynq .. 'g:' .. lane, int(score), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return first[1], tonumber(first[2])
end

local function lane_drop(lane, id) return redis.call('ZREM', asynq .. 'g:' .. lane, id) end

-- An empty group that stays listed breaks asynq's memory figure of the queue.
local function lane_forget(lane) redis.call('SREM', asynq .. 'groups', lane) end

local function lane_length(lane) return redis.call('ZCARD', asynq .. 'g:' .. lane) end

-- pend hands a task to asynq's workers; it is the last of the pending list.
local function pend(id) redis.call('LPUSH', asynq .. 'pending', id) end

-- deactivate takes a task from a worker that is gone; false when it was not active.
local function deactivate(id)
  local leased = redis.call('ZREM', asynq .. 'lease', id)
  return redis.call('LREM', asynq .. 'active', 1, id) + leased > 0
end
