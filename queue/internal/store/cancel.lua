-- cancel.lua: take a job from where it waits, and cancel it.
--
-- A library behind record.lua, end.lua and message.lua.

-- job_read returns what the functions here need to know of a job, without its message; nil
-- if it was deleted.
local function job_read(id)
  local f = read('HMGET', task_key(id), 'state', 'group', 'hg_slot', 'hg_permits', 'hg_cost', 'hg_costs', 'hg_done',
    'hg_unique', 'hg_marks', 'hg_next', 'hg_base', 'hg_released', 'hg_log')
  if not f[1] then return nil end
  return {
    state = f[1], group = f[2] or '', slot = f[3], permits = f[4], costs = costs_read(f[5], f[6]), done = f[7],
    unique = f[8], marks = f[9], follows = f[10], base = f[11], released = f[12], log = f[13],
  }
end

-- take_out removes a job from where it waits, and returns false if it is not there. At the
-- index `at` of the pending list a mark replaces it for now: one command removes all marks,
-- and takes as long as removing one job.
local MARK = '\0'
local function take_out(id, job, at)
  if job.state == 'aggregating' then
    if not read('ZSCORE', lane_key(job.group), id) then return false end
    lane_drop(job.group, id)
    backlog_add(tenant_of(job.group), -1)
    return true
  elseif job.state == 'pending' then
    if at then
      plan('LSET', asynq .. 'pending', at, MARK)
    else
      if not read('LPOS', asynq .. 'pending', id) then return false end
      plan('LREM', asynq .. 'pending', 1, id)
    end
    return true
  elseif job.state == 'archived' then
    return archive_drop(id)
  end
  if not read('ZSCORE', asynq .. job.state, id) then return false end
  plan('ZREM', asynq .. job.state, id)
  return true
end

-- log_of returns the log of a job with one more line.
local function log_of(job, line)
  local _, _, position = slot_read(job.slot)
  return log_add(job.log, log_begin(job.log, job.released, job.position or position) .. line)
end

-- cancel ends a job that was taken out. It needs the job's msg, lane, and position in the
-- lane if it was in one.
local function cancel(id, job, reason, now)
  local _, c, position = slot_read(job.slot)
  free_permits(id, job.permits, now)
  free_key(id, job.unique)
  local key = task_key(id)
  plan('HDEL', key, 'pending_since', 'hg_marks')
  plan('HSET', key, 'hg_slot', slot_write(0, 0, job.position or position or BAND + now))
  local log = log_of(job, log_line(now, 'ended', '', '', '', '', 'cancelled: ' .. reason))
  local failed = math.max(message_read(job.msg).retried - tonumber(job.base or 0), 0)
  event(id, tenant_of(job.lane), escape(message_kind(job.msg)), 'cancelled', '',
    run_write({outcome = 'cancelled', attempt = failed, reason = clip(reason, 300)}))
  if job.follows then
    end_waiting(id, 'cancelled', reason, log)
  else
    plan('HSET', key, 'hg_outcome', 'cancelled', 'hg_error', reason, 'msg', message_failed(job.msg, reason, now),
      'hg_log', log, 'hg_released', '')
    archive_add(id, now)
  end
  -- The permits of a call that will not be made are given back.
  if c > 0 then refund_all(lane_limits(job.lane, now).all, now, c, job.costs, job.marks) end
end
