-- end.lua: the marks of jobs that have ended. A job that bears one is never
-- called again: it is only put away, however often a worker gets it.
local function mark_done(key, result, log)
  local fields = {'hg_done', '1'}
  if result ~= '' then fields[3], fields[4] = 'result', result end
  if log then fields[#fields + 1], fields[#fields + 2] = 'hg_log', log end
  plan('HSET', key, unpack(fields))
  plan('HDEL', key, 'hg_error', 'hg_outcome')
end

-- mark_failed takes "<outcome> <reason>".
local function mark_failed(key, text, log)
  local outcome, reason = string.match(text, '^(%l+) (.*)$')
  plan('HSET', key, 'hg_done', '0', 'hg_outcome', outcome, 'hg_error', reason, 'hg_log', log, 'hg_released', '')
end

-- end_waiting ends a job that no worker holds, and that its caller has taken
-- from where it waited: a worker puts it away, with all that follows from it.
local function end_waiting(id, outcome, reason, now, log)
  local key = task_key(id)
  mark_failed(key, outcome .. ' ' .. reason, log)
  free_permits(id, read('HGET', key, 'hg_permits'), now)
  pend(id)
end

-- archive_drop takes a job out of the archive, asynq's or ours; false: it is in neither.
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
