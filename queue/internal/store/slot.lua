-- slot.lua: give a slot to a job that a worker holds and that has none, or none any more.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   near_us: how far ahead of now the slot may be
-- ARGV[3]   pickup_us: how long after its earliest moment the call may still begin
-- ARGV[4]   calendars as JSON, '' for none
-- ARGV[5..] id, owner, tenant, attributes, kind, cost, costs (as for enqueue), lease_us: how long the call of a probe
--           may take, and until_us: when the worker waits no longer for the answer
-- Returns   {answer, earliest_us, latest_us, now_us}; for 'go' also {flags}: 2 and 4, see
--           dispatch.lua; for 'park' also {reason, limit}
--   answer  'go' | 'park' its slot is too far ahead: it is back in its lane | 'gone' it does
--           not belong to this worker any more | 'done' and 'failed' an earlier run ended it | 'late' the worker does
--           not wait any more, and may have asked again: this would take away what it got then
--   reason  'pause' | 'window' | 'limit' or 'concurrency', and the limit's name
-- Bound: one job, and the limits of its lane.
-- Full memory: it runs (allow-oom). It replaces a slot, or sends a job back to its lane.
local now = clock()
if now > tonumber(ARGV[13]) then return {'late', 0, 0, int(now)} end
local id, owner, tenant, attributes, kind = unpack(ARGV, 5, 9)
local near, latest, lease = now + tonumber(ARGV[2]), now + tonumber(ARGV[3]), tonumber(ARGV[12])
local key = task_key(id)

-- held_by returns why a job goes back to its lane: the reason, the limit, and when it may
-- go.
local function held_by(job)
  if job.paused > near then return 'pause', '', int(job.own) end -- a pause from the provider stops buckets, too
  if job.blocked then return 'concurrency', job.blocked.name, '' end
  if not job.binding.spec then return 'window', '', int(job.own) end
  return 'limit', job.binding.name, int(job.own)
end

-- go plans a slot, and returns the reply; if the slot is too far ahead, it returns nil
-- and what held_by returns.
local function go(job, lane)
  set_calendars(ARGV[4])
  local limits = lane_limits(kind_of(lane) and lane or lane_of_kind(lane, kind), now)
  for _, entry in ipairs(limits.all) do
    if entry.spec then entry.spec.within = latest - now end
  end
  -- Its slot was missed. If no later slot was given, it moves to now, and only the time
  -- since is lost.
  if job.missed > 0 then refund_all(limits.all, now, job.missed, job.costs, job.marks) end
  slot_ask(job, limits, limits.all, true, now)
  if job.blocked or job.own > near then return nil, held_by(job) end
  local c, marks = slot_take(job, job.own, latest, now)
  if job.due then hold_try(job.due, id, lease, now) end
  plan('HSET', key, unpack(slot_fields({'group', lane}, job, job.own, c, marks)))
  return {'go', int(job.own), int(c), int(now), ((job.due or job.tries) and 2 or 0) + (job.permits ~= '' and 4 or 0)}
end

-- park sends a job back to its lane. asynq's retry set is only the way: the group names
-- the lane.
local function park(job, lane, why, limit, till)
  local log = log_add(job.log, log_begin(job.log, job.released, job.enqueued) .. log_line(now, 'parked', '', limit, till, '', why))
  plan('HSET', key, 'group', lane, 'hg_slot', slot_write(0, 0, job.position), 'hg_log', log, 'hg_released', '')
  plan('HDEL', key, 'hg_marks')
  free_permits(id, job.held, now)
  return {'park', 0, 0, int(now), why, limit}
end

-- lane_for returns the lane of the job. A job of asynq's own client may be in a lane
-- whose name does not contain its receiver.
local function lane_for(group)
  local lane = group ~= '' and group or nil
  if lane and (endpoint_of(lane) or not string.find(';' .. attributes, ';endpoint=', 1, true)) then return lane end
  return lane_name(tenant, attributes_write(kind, attributes))
end

local reply, job, lane
local understood = attempt('job ' .. id, function()
  local task = read('HMGET', key, 'state', 'hg_owner', 'group', 'hg_slot', 'hg_permits', 'hg_marks', 'hg_released', 'hg_log', 'hg_done')
  if task[1] ~= 'active' or task[2] ~= owner then
    reply = {'gone', 0, 0, int(now)}
  elseif task[9] then
    reply = {task[9] == '1' and 'done' or 'failed', 0, 0, int(now)}
  else
    local _, missed, position = slot_read(task[4])
    job = {
      id = id, asks = id, costs = costs_read(ARGV[10], ARGV[11]), missed = missed, enqueued = position, position = position or BAND + now,
      permits = task[5], held = task[5], marks = task[6], released = task[7], log = task[8],
    }
    lane = lane_for(task[3])
  end
end)
if not understood then return {'gone', 0, 0, int(now)} end
if reply then return reply end
-- If its limits are damaged, it goes back to its lane, and waits there.
local why, limit, till
if not attempt('lane ' .. lane, function() reply, why, limit, till = go(job, lane) end) then why, limit, till = 'limit', '', '' end
return reply or park(job, lane, why, limit, till)
