-- late.lua: the end of a run whose job was taken from its worker, which did not answer
-- but is alive. The run was not a crash. If its call succeeded, the job is done and is
-- not called again, even if another worker has it now.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   id
-- ARGV[3]   owner: the run
-- ARGV[4]   tenant, escaped
-- ARGV[5]   kind, escaped
-- ARGV[6]   '1': the call succeeded
-- ARGV[7]   its result
-- ARGV[8]   its answer, ARGV[9] attempt, ARGV[10] took_us
-- Returns   1 if this call made the job done; -1 if the job is on its way to another partition, -2 if it is
--           not here; else 0, for example if the job was deleted and enqueued again
-- Bound: one job.
-- Full memory: it runs (allow-oom), as settle.lua does: a job ends, and keeps a bounded result.
local now = clock()
local id, owner, tenant, kind, succeeded = unpack(ARGV, 2, 6)
local key = task_key(id)
local done, away = false, nil
local understood = attempt('job ' .. id, function()
  if read('EXISTS', key) == 0 then away = -2 elseif read('HEXISTS', headgate .. 'leaving', id) == 1 then away = -1 end
  if away then return end
  local task = read('HMGET', key, 'state', 'group', 'hg_lost', 'hg_crashes', 'hg_done', 'hg_unique', 'hg_permits', 'hg_owner', 'hg_beside', 'hg_body')
  local counted, others = nil, {}
  for _, run in ipairs(lost_read(task[3])) do
    if run[1] == owner then counted = run[2] else others[#others + 1] = run end
  end
  if not counted then return end

  done = succeeded == '1' and not task[5]
  if done then
    mark_done(key, ARGV[7])
    stored_result(id, tenant, task[10], ARGV[7])
    if task[1] == 'aggregating' or task[1] == 'retry' or task[1] == 'scheduled' then
      local set = task[1] == 'aggregating' and lane_key(task[2]) or asynq .. task[1]
      if not read('ZSCORE', set, id) then error('it is not where its state says, ' .. task[1], 0) end
      -- A worker puts it away, and needs no slot for that.
      pend(id)
      if task[1] == 'aggregating' then
        lane_drop(task[2], id)
        wake(task[2], now, true) -- its first job may be another one
        backlog_add(tenant_of(task[2]), -1)
      else
        plan('ZREM', set, id)
      end
    end
    -- The permits that it was released with are free, unless another run has begun with
    -- them.
    if task[1] ~= 'active' or not task[8] then free_permits(id, task[7], now) end
    free_key(id, task[6])
    done_add(tenant)
    event(id, tenant, kind, 'done', ARGV[8], run_write({outcome = 'done', answer = ARGV[8], attempt = ARGV[9], took = tonumber(ARGV[10])}))
  end
  plan('HSET', key, 'hg_lost', lost_write(others))
  local crashes = tonumber(task[4] or 0)
  if counted == '1' then
    plan('HSET', key, 'hg_crashes', int(math.max(crashes - 1, 0)))
  elseif counted == '2' then
    plan('HSET', key, 'hg_beside', int(math.max(tonumber(task[9] or 0) - 1, 0)), 'hg_crashes', int(math.min(crashes, 2)))
  end
end)
if away then return away end
return understood and done and 1 or 0
