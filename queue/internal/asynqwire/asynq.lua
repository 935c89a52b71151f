-- asynq.lua: everything that the scripts do to asynq's own keys.
--
-- A library in front of all scripts of a queue; ARGV[1] is the queue. The layout is that
-- of asynq v0.26, unchanged since v0.23; a new version of asynq has to pass the contract
-- test. Keys are built from the queue's name, as asynq's scripts do: all keys of a queue
-- share its hash tag.
--
--   t:<id>              hash of a task: msg, state, group, pending_since; Headgate's own fields
--                       begin with hg_
--   pending, active     lists of ids: added on the left with LPUSH, taken from the right
--   scheduled, retry    sorted sets of ids by due time, in whole Unix seconds
--   lease               sorted set of the active ids by the end of their lease, Unix seconds
--   g:<group>, groups   the ids of a group, and the set of all groups. Groups are the lanes.
--                       asynq only lists them, so their scores can be µs: first in, first
--                       out also within a second
local asynq = 'asynq:{' .. ARGV[1] .. '}:'

-- clock returns the time of Redis in µs. It is the same throughout a script.
local moment
local function clock()
  if not moment then
    local time = redis.call('TIME')
    moment = time[1] * 1000000 + time[2]
  end
  return moment
end

-- int returns a number as text without decimals. It raises if the number is out of range.
local format = string.format
local function int(number)
  if not (number > -1e19 and number < 1e19) then error(tostring(number) .. ' is out of range', 0) end
  return format('%.0f', number)
end

local function task_key(id) return asynq .. 't:' .. id end

-- varint returns a number in protobuf's encoding, for the few fields that scripts append.
local function varint(n)
  local text = ''
  while n >= 128 do
    text, n = text .. string.char(128 + n % 128), math.floor(n / 128)
  end
  return text .. string.char(n)
end

-- with_group appends group_key (field 14) to an encoded task message. Scripts do this
-- because the lane depends on the limits in force, which only they see.
local function with_group(msg, lane)
  return msg .. string.char(114) .. varint(#lane) .. lane
end

local function lane_key(lane) return asynq .. 'g:' .. lane end

local function lane_push(lane, id, score)
  plan('ZADD', lane_key(lane), int(score), id)
  plan('SADD', asynq .. 'groups', lane)
end

-- lane_append is lane_push for a lane that holds jobs, and is therefore listed already.
local function lane_append(lane, id, score) plan('ZADD', lane_key(lane), int(score), id) end

local function lane_length(lane) return read('ZCARD', lane_key(lane)) end

-- lane_first returns the score of the first job of a lane; math.huge: it has none.
local function lane_first(lane)
  return tonumber(read('ZRANGE', lane_key(lane), 0, 0, 'WITHSCORES')[2] or math.huge)
end

-- asynq computes the memory use of a queue wrongly if an empty group stays listed.
local function lane_forget(lane) plan('SREM', asynq .. 'groups', lane) end

-- pend hands a task to asynq's workers, at the end of the pending list.
local function pend(id)
  plan('HSET', task_key(id), 'state', 'pending', 'pending_since', int(clock() * 1000))
  push(asynq .. 'pending', id)
end

-- unlock releases the lock that asynq's own client took for a task, its unique_key.
local function unlock(id, lock)
  if lock and lock ~= '' and read('GET', lock) == id then plan('DEL', lock) end
end

-- each_field calls see(field, first, last) for every text of msg[from..to], and
-- see(field, number) for every number, until see returns true or the message is cut off.
local function each_field(msg, from, to, see)
  local at = from
  local function number()
    local n, unit = 0, 1
    while at <= to do
      local byte = string.byte(msg, at)
      n, unit, at = n + byte % 128 * unit, unit * 128, at + 1
      if byte < 128 then break end
    end
    return n
  end
  while at <= to do
    local tag = number()
    local field, form = math.floor(tag / 8), tag % 8
    if form == 0 then
      if see(field, number()) then return end
    elseif form == 2 then
      local length = number()
      if see(field, at, math.min(at + length - 1, to)) then return end
      at = at + length
    else
      at = at + (form == 1 and 8 or 4)
    end
  end
end

-- message_kind returns a task's kind, which asynq writes first.
local function message_kind(msg)
  local kind = ''
  each_field(msg, 1, #msg, function(field, first, last)
    if field == 1 and last then kind = string.sub(msg, first, last) end
    return true
  end)
  return kind
end
