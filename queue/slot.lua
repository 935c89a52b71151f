-- slot.lua: a slot for a job that a worker holds and that has none (any more).
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   near_us: how far ahead of now the slot may lie
-- ARGV[3]   pickup_us: how long after its earliest moment the call may still go
-- ARGV[4]   calendars as JSON, '' for none
-- ARGV[5..] id, owner, tenant, attributes, kind, cost, costs (as for enqueue), and lease_us:
--           how long the call of a probe may take
-- Returns   {answer, earliest_us, latest_us, now_us}, of 'go' also {flags}: 2 and 4, see
--           dispatch.lua; and of 'park' {reason, limit}
--   answer  'go' | 'park' its slot is far: back to the lane | 'gone' not this
--           worker's any more | 'done' and 'failed' an earlier run has ended it
--   reason  'pause' | 'window' | 'limit' or 'concurrency', and the limit's name
-- Full memory: it runs (allow-oom). It replaces a slot, or sends a job back to its lane.
local now = clock()
local id, owner, tenant, attributes, kind = unpack(ARGV, 5, 9)
local key = task_key(id)
local task, lane, position, costs

local function goes()
  set_calendars(ARGV[4])
  local limits = lane_limits(lane, now)
  -- Its slot was missed. Where nothing was given after it, it moves to now, and
  -- only the time since is lost.
  local _, missed = slot_read(task[4])
  if missed > 0 then refund_all(limits.all, now, missed, costs, task[6]) end
  local near = now + tonumber(ARGV[2])
  local paused, due, tries = paused_until(limits.tenant, kind, limits.endpoint, id)
  local t, binding = earliest_all(limits.all, now, math.max(now, paused), costs)
  local blocked = not task[5] and blocked_by(limits, now)
  if blocked or t > near then
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
    return nil, why, limit, till
  end
  local c, marks = 0, ''
  if #limits.all > 0 then
    c = math.max(t, now + tonumber(ARGV[3]))
    marks = commit_all(limits.all, now, c, costs)
  end
  local fields = {'hg_slot', slot_write(t, c, position or BAND + now), 'group', lane}
  if marks ~= '' then fields[5], fields[6] = 'hg_marks', marks end
  local permits = task[5] or ''
  if not task[5] then
    permits = take_permits(limits, id, now)
    if permits ~= '' then fields[#fields + 1], fields[#fields + 2] = 'hg_permits', permits end
  end
  if due then hold_try(due, id, tonumber(ARGV[12]), now) end
  plan('HSET', key, unpack(fields))
  return {'go', int(t), int(c), int(now), ((due or tries) and 2 or 0) + (permits ~= '' and 4 or 0)}
end

-- asynq's retry set is only the way back: the group says where the job belongs.
local function park(why, limit, till)
  local log = log_add(task[8], log_begin(task[8], task[7], position) .. log_line(now, 'parked', '', limit, till, '', why))
  plan('HSET', key, 'group', lane, 'hg_slot', slot_write(0, 0, position or BAND + now), 'hg_log', log, 'hg_released', '')
  plan('HDEL', key, 'hg_marks')
  free_permits(id, task[5], now)
  return {'park', 0, 0, int(now), why, limit}
end

local reply
local understood = attempt('job ' .. id, function()
  task = read('HMGET', key, 'state', 'hg_owner', 'group', 'hg_slot', 'hg_permits', 'hg_marks', 'hg_released', 'hg_log', 'hg_done')
  if task[1] ~= 'active' or task[2] ~= owner then
    reply = {'gone', 0, 0, int(now)}
    return
  end
  if task[9] then
    reply = {task[9] == '1' and 'done' or 'failed', 0, 0, int(now)}
    return
  end
  costs = costs_read(ARGV[10], ARGV[11])
  lane = task[3] ~= '' and task[3] or nil
  -- One of asynq's own client may stand in a lane that does not say its receiver.
  if not lane or (not endpoint_of(lane) and string.find(';' .. attributes, ';endpoint=', 1, true)) then
    lane = lane_name(tenant, attributes_write(kind, attributes))
  end
  local _, _, at = slot_read(task[4])
  position = at
end)
if not understood then return {'gone', 0, 0, int(now)} end
if reply then return reply end
local why, limit, till
-- Where its limits cannot be understood it goes back to its lane, and waits there.
if not attempt('lane ' .. lane, function() reply, why, limit, till = goes() end) then why, limit, till = 'limit', '', '' end
return reply or park(why, limit, till)
