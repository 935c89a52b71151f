-- message.lua: read and change asynq's encoded task messages.
--
-- A library behind asynq.lua, for scripts that need more of a task than the fields of its
-- hash. A message is protobuf: if a field occurs twice, the last one counts. So a change
-- is appended, and nothing is encoded again.

-- message_read returns how often a task may be retried and was retried, and its headers.
local function message_read(msg)
  local m = {retry = 0, retried = 0, headers = {}}
  each_field(msg, 1, #msg, function(field, first, last)
    if field == 5 then
      m.retry = first
    elseif field == 6 then
      m.retried = first
    elseif field == 15 then
      local name, value = '', ''
      each_field(msg, first, last, function(part, a, b)
        if part == 1 then name = string.sub(msg, a, b) elseif part == 2 then value = string.sub(msg, a, b) end
      end)
      m.headers[name] = value
    end
  end)
  return m
end

-- message_tenant returns the tenant of a task, escaped. lane is the lane that the task
-- names, or '' if it names none because asynq's own client enqueued it.
local function message_tenant(msg, lane)
  if lane ~= '' then return tenant_of(lane) end
  local tenant = message_read(msg).headers['headgate-tenant'] or ''
  return escape(tenant ~= '' and tenant or 'default')
end

-- task_lane returns the lane of a task that names none: one of asynq's own client.
local function task_lane(msg)
  local attributes = message_read(msg).headers['headgate-attributes'] or ''
  return lane_name(message_tenant(msg, ''), attributes_write(escape(message_kind(msg)), attributes))
end

-- message_light returns a message without its payload (field 2), which may be long.
local function message_light(msg)
  local from, to
  each_field(msg, 1, #msg, function(field, first, last)
    if field == 2 and not from then from, to = first, last end
    return field > 2
  end)
  if not from then return msg end
  return string.sub(msg, 1, from - 2 - #varint(to - from + 1)) .. string.sub(msg, to + 1)
end

-- fold replaces numbers and ids in a reason, so that reasons that differ only in these
-- become equal, and removes the attempt. The status of an answer stays. store.FoldReason
-- does the same in Go.
local function fold(reason)
  reason = string.gsub(reason, '^attempt %d+ of %d+: ', '')
  local before = ''
  return (string.gsub(reason, '[%w_-]+', function(word)
    local status = (before == 'answered' or before == 'status' or before == 'HTTP') and string.find(word, '^[1-5]%d%d$')
    before = word
    if status then return nil end
    if #word >= 8 and string.find(word, '%d') then return '#' end
    return (string.gsub(word, '%d+', '#'))
  end))
end

-- message_reason returns why a task failed; `other` if the message has no reason, as for
-- a task that never failed.
local function message_reason(msg, other)
  local reason = ''
  each_field(msg, 1, #msg, function(field, first, last)
    if field == 7 then reason = string.sub(msg, first, last) end
  end)
  return reason ~= '' and reason or other or ''
end

local failed = {archived = true, expired = true, unknown = true, crashed = true, cancelled = true}

-- failures_wanted reads which archived jobs are wanted: 'part TEXT' means those whose
-- reason contains a text, as it is or folded; 'group OUTCOME REASON' those with this
-- outcome and folded reason. It returns a function that reports whether a job is wanted,
-- from its message, hg_outcome and hg_error; nil if all are wanted.
local function failures_wanted(words)
  if words == '' then return nil end
  local part = string.match(words, '^part (.*)$')
  if part then
    return function(msg, _, other)
      local reason = message_reason(msg, other)
      return string.find(reason, part, 1, true) ~= nil or string.find(fold(reason), part, 1, true) ~= nil
    end
  end
  local outcome_wanted, reason_wanted = string.match(words, '^group (%S+) (.*)$')
  return function(msg, outcome, other)
    if not failed[outcome] then outcome = 'archived' end
    return outcome == outcome_wanted and fold(message_reason(msg, other)) == reason_wanted
  end
end

-- message_failed sets why and when a task failed (fields 7 and 11).
local function message_failed(msg, reason, now)
  return msg .. string.char(58) .. varint(#reason) .. reason .. string.char(88) .. varint(math.floor(now / 1000000))
end

-- message_unretried resets asynq's count of a task's retries (field 6).
local function message_unretried(msg) return msg .. string.char(48, 0) end

-- When asynq archives a task and there are more than 10,000, it deletes the oldest. Jobs
-- that would come near that number go into a set of Headgate's own.
local OURS = 'headgate:{' .. ARGV[1] .. '}:archive'

local added = 0
local function archive_add(id, now)
  if read('ZCARD', asynq .. 'archived') + added < 5000 then
    added = added + 1
    plan('ZADD', asynq .. 'archived', int(math.floor(now / 1000000)), id)
  else
    plan('ZADD', OURS, int(now), id)
  end
  plan('HSET', task_key(id), 'state', 'archived')
end

-- forget deletes a task and the lock that asynq's own client took for it, and counts it no longer.
local function forget(id)
  local task = read('HMGET', task_key(id), 'unique_key', 'group', 'hg_body')
  unlock(id, task[1])
  plan('DEL', task_key(id))
  local _, size = body_read(task[3])
  if size then tenant_add(tenant_of(task[2] or ''), 0, 0, -1, -size) end
end
