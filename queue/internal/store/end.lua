-- end.lua: the marks of jobs that have ended. A job with a mark is never called again: a
-- worker that gets it only puts it away.
local function mark_done(key, result, log)
  local fields = {'hg_done', '1'}
  if result ~= '' then fields[3], fields[4] = 'result', result end
  if log then fields[#fields + 1], fields[#fields + 2] = 'hg_log', log end
  plan('HSET', key, unpack(fields))
  plan('HDEL', key, 'hg_error', 'hg_outcome')
end

-- mark_failed marks a job that failed. text is "<outcome> <reason>".
local function mark_failed(key, text, log)
  local outcome, reason = string.match(text, '^(%l+) (.*)$')
  plan('HSET', key, 'hg_done', '0', 'hg_outcome', outcome, 'hg_error', reason, 'hg_log', log, 'hg_released', '')
end

-- end_waiting ends a job that no worker holds and that its caller has removed from where
-- it waited, and whose permits it has freed. A worker puts the job away and enqueues its follow-ups.
local function end_waiting(id, outcome, reason, log)
  mark_failed(task_key(id), outcome .. ' ' .. reason, log)
  pend(id)
end

-- archive_drop removes a job from both archives, and returns whether it was in one.
local function archive_drop(id)
  local there = false
  for _, set in ipairs({asynq .. 'archived', headgate .. 'archive'}) do
    if read('ZSCORE', set, id) then
      plan('ZREM', set, id)
      there = true
    end
  end
  return there
end
