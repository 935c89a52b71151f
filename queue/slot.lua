-- slot.lua: a slot for a job that a worker holds and that has none (any more).
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   near_us: how far ahead of now the slot may lie
-- ARGV[3]   pickup_us: how long after its earliest moment the call may still go
-- ARGV[4]   calendars as JSON, '' for none
-- ARGV[5..] id, owner, tenant, attributes, kind, cost, costs (as for enqueue)
-- Returns   {answer, earliest_us, latest_us}, and of 'park' also {reason, limit}
--   answer  'go' | 'park' its slot is far: back to the lane | 'gone' not this
--           worker's any more
--   reason  'pause' | 'window' | 'limit' or 'concurrency', and the limit's name
local now = clock()
set_calendars(ARGV[4])
local id, owner, lane, attributes, kind = unpack(ARGV, 5, 9)
local costs = costs_read(ARGV[10], ARGV[11])
local task = redis.call('HMGET', task_key(id), 'state', 'hg_owner', 'group', 'hg_slot', 'hg_permits', 'hg_marks', 'hg_released', 'hg_log')
if task[1] ~= 'active' or task[2] ~= owner then return {'gone', 0, 0} end

local known = task[3] and task[3] ~= ''
if known then
  lane = task[3]
else
  lane = lane_name(lane, 'kind=' .. kind .. ';' .. attributes)
end
local limits = lane_limits(lane, now)
-- Its slot was missed. Where nothing was given after it, it moves to now, and
-- only the time since is lost.
local _, missed, position = slot_read(task[4])
if missed > 0 then refund_all(limits.all, now, missed, costs, task[6]) end
local near, paused = now + tonumber(ARGV[2]), paused_until(limits.tenant, kind)
local t, binding = earliest_all(limits.all, now, math.max(now, paused), costs)
local blocked = not task[5] and blocked_by(limits, now)
if blocked or t > near then
  -- asynq's retry set is only the way back: the group says where the job belongs.
  local why, limit, till = 'limit', '', int(t)
  if paused > near then -- a pause of the provider's stops buckets, too
    why = 'pause'
  elseif blocked then
    why, limit, till = 'concurrency', blocked.name, ''
  elseif not binding.spec then
    why = 'window'
  else
    limit = binding.name
  end
  local log = log_add(task[8], log_begin(task[8], task[7], position) .. log_line(now, 'parked', '', limit, till, '', why))
  redis.call('HSET', task_key(id), 'group', lane, 'hg_slot', slot_write(0, 0, position or BAND + now), 'hg_log', log, 'hg_released', '')
  redis.call('HDEL', task_key(id), 'hg_marks')
  save_buckets(now)
  free_permits(id, task[5], now)
  return {'park', 0, 0, why, limit}
end
local c, marks = 0, ''
if #limits.all > 0 then
  c = math.max(t, now + tonumber(ARGV[3]))
  marks = commit_all(limits.all, now, c, costs)
  save_buckets(now)
end
local fields = {'hg_slot', slot_write(t, c, position or BAND + now), 'group', lane}
if marks ~= '' then fields[5], fields[6] = 'hg_marks', marks end
if not task[5] then
  local permits = take_permits(limits, id, now)
  if permits ~= '' then fields[#fields + 1], fields[#fields + 2] = 'hg_permits', permits end
end
redis.call('HSET', task_key(id), unpack(fields))
return {'go', int(t), int(c)}
