-- verbs.lua: look at a slice of a queue's jobs, and apply an operator's verb to those
-- that match.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   verb: 'cancel' | 'run' | 'wake' | 'retry' | 'delete'
-- ARGV[3]   '1': a dry run, which only counts
-- ARGV[4]   place: 'lanes' | 'scheduled' | 'retry' | 'pending' | 'active' | 'archived'
--           | 'archive' | 'id' one job, wherever it is
-- ARGV[5]   cursor: where the last slice ended, '' to begin
-- ARGV[6]   most: the maximum number of jobs to look at
-- ARGV[7]   tenant (escaped), '' for any
-- ARGV[8]   kind, '' for any
-- ARGV[9]   began_us: jobs archived after this are left alone; otherwise a job that fails
--           again at once would be retried forever
-- ARGV[10]  reason, for jobs that are cancelled
-- ARGV[11]  audit entry without its end, which is the count and '}': its share of the audit, a
--           space, and the text
-- ARGV[12]  count so far
-- ARGV[13]  calendars as JSON, '' for none
-- ARGV[14]  which reasons: words of failures_wanted in message.lua, '' for any
-- ARGV[15..] the lanes, or the id
-- Returns   {done 1|0, cursor, lanes done, looked at, matched, too late, held by a pause,
--           state of the one job}
-- Bound: `most` jobs, and 2 MiB of their messages.
-- Full memory: it runs (allow-oom). A job is deleted, or moves to another set with a line in its log
-- and a reason, which are bounded; so is the audit.
-- Each job moves in one step from where it was to where it goes.
local now = clock()
local verb, dry, place, cursor, most = ARGV[2], ARGV[3] == '1', ARGV[4], ARGV[5], tonumber(ARGV[6])
local tenant_wanted, kind_wanted, began, wanted = ARGV[7], ARGV[8], tonumber(ARGV[9]), failures_wanted(ARGV[14])
set_calendars(ARGV[13])

local looked, matched, late, held, bytes = 0, 0, 0, 0, 0
local MAX_BYTES = 2097152 -- of messages: reading and writing large ones takes time

local function full() return looked >= most or bytes >= MAX_BYTES end

-- acts has the states in which a verb acts on a job, and comes_late those in which it
-- only counts the job as too late.
local acts = {
  cancel = {aggregating = true, scheduled = true, retry = true, pending = true},
  run = {aggregating = true, scheduled = true, retry = true},
  wake = {retry = true},
  retry = {archived = true},
  delete = {archived = true},
}
local comes_late = {cancel = {active = true}, run = {pending = true, active = true}, wake = {}, retry = {}, delete = {}}

local pausing = read('EXISTS', headgate .. 'pauses') == 1
local marked = 0 -- jobs of the pending list

local verbs = {}

function verbs.cancel(id, task) cancel(id, task, ARGV[10], now) end

function verbs.run(id, task)
  local _, c, position = slot_read(task.slot)
  local limits = lane_limits(task.lane, now)
  blocked_by(limits, now) -- opens the buckets that are used below
  for _, entry in ipairs(limits.all) do
    if entry.spec then limit_left(entry.spec, bucket(entry, now), now) end
  end
  local log = log_of(task, log_line(now, 'operator', '', '', '', '', 'run'))
  pend(id)
  plan('HSET', task_key(id), 'group', task.lane, 'hg_log', log, 'hg_released', '',
    'hg_slot', slot_write(now, 0, task.position or position or BAND + now))
  if c <= now then -- the permits of a slot that it kept are taken already
    for _, entry in ipairs(limits.all) do
      local n = entry.spec and share_of(entry, task.costs) or 0
      if n > 0 then limit_charge(entry.spec, bucket(entry, now), now, n) end
    end
  end
  if not task.permits then
    local permits = take_permits(limits, id, now)
    if permits ~= '' then plan('HSET', task_key(id), 'hg_permits', permits) end
  end
end

-- A job keeps its place in its lane, as when the time of its next attempt comes.
function verbs.wake(id, task)
  local _, _, position = slot_read(task.slot)
  if task.group ~= task.lane then plan('HSET', task_key(id), 'group', task.lane) end
  to_lane(task.lane, id, position or BAND + now + matched, now)
end

-- A retried job goes behind all waiting jobs of its priority.
function verbs.retry(id, task)
  local key = task_key(id)
  if task.done == '1' then
    -- Its call succeeded, and is never made again: only its follow-ups are enqueued.
    return pend(id)
  end
  plan('HDEL', key, 'hg_done', 'hg_followed', 'hg_error', 'hg_outcome', 'hg_crashes', 'hg_beside', 'hg_called', 'hg_lost', 'hg_owner')
  local m = message_read(task.msg)
  if m.retry < 2147483647 then
    -- A job of asynq's own client: asynq itself counts its retries.
    plan('HSET', key, 'msg', message_unretried(task.msg))
    m.retried = 0
  end
  plan('HSET', key, 'hg_base', int(m.retried), 'hg_log', log_of(task, log_line(now, 'operator', '', '', '', '', 'retry')))
  free_permits(id, task.permits, now)
  -- It holds its key again, unless another job has it by now.
  if task.unique then plan('SET', unique_key(task.unique), id, 'NX', 'PX', int(KEY_MS)) end
  local deadline = tonumber(read('HGET', key, 'hg_deadline'))
  if deadline then plan('ZADD', headgate .. 'deadlines', int(deadline), id) end
  if task.group == '' then return pend(id) end
  local _, _, position = slot_read(task.slot)
  position = band_of(position or BAND) * BAND + now + matched
  plan('HSET', key, 'hg_slot', slot_write(0, 0, position))
  to_lane(task.group, id, position, now)
end

function verbs.delete(id, task)
  free_permits(id, task.permits, now)
  free_key(id, task.unique)
  plan('ZREM', headgate .. 'deadlines', id)
  forget(id)
end

-- visit_one applies the verb to a job if it matches, and returns whether the job left its
-- place. expected is the state that a job in this place has, or nil for any.
local function visit_one(id, expected, position, at)
  local task = job_read(id)
  if not task or (expected and task.state ~= expected) then return false end -- asynq's tools moved or deleted it
  local may = acts[verb][task.state]
  if not may and not comes_late[verb][task.state] then return false end
  local rewrites = not dry and (verb == 'cancel' or verb == 'retry')
  if rewrites or kind_wanted ~= '' or wanted or task.group == '' or (verb == 'run' and pausing) then
    task.msg = read('HGET', task_key(id), 'msg') or ''
    bytes = bytes + #task.msg
  end
  if kind_wanted ~= '' and message_kind(task.msg) ~= kind_wanted then return false end
  if wanted and not wanted(task.msg, unpack(read('HMGET', task_key(id), 'hg_outcome', 'hg_error'))) then return false end
  task.lane, task.position = task.group ~= '' and task.group or task_lane(task.msg), position
  local tenant = tenant_of(task.lane)
  if tenant_wanted ~= '' and tenant ~= tenant_wanted then return false end
  -- A job that has ended only has to be put away, and cannot be taken back.
  if not may or (task.done and task.state ~= 'archived') then
    late = late + 1
    return false
  end
  if verb == 'run' and pausing then
    local paused, due = paused_until(tenant, escape(message_kind(task.msg)), endpoint_of(task.lane))
    if paused > now or due then
      held = held + 1
      return false
    end
  end
  if dry then
    matched = matched + 1
    return false
  end
  if not take_out(id, task, at) then return false end
  verbs[verb](id, task)
  matched = matched + 1
  return true
end

local seen = {}
local function visit(id, expected, position, at)
  if seen[id] then return false end -- damaged: the list has it twice
  seen[id] = true
  local left = false
  attempt('job ' .. id, function() left = visit_one(id, expected, position, at) end)
  if left and at then marked = marked + 1 end
  return left
end

-- behind returns up to n jobs after the cursor, "score id", of a sorted set.
local function behind(set, n)
  local score, id = string.match(cursor, '^(%S+) (.*)$')
  if score then
    local there = read('ZSCORE', set, id)
    if there and tonumber(there) == tonumber(score) then
      local rank = read('ZRANK', set, id)
      return read('ZRANGE', set, rank + 1, rank + n, 'WITHSCORES')
    end
  end
  return read('ZRANGEBYSCORE', set, score or '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, n)
end

-- walk visits a sorted set, and returns true at its end. The cursor stays at the last job
-- that was left in place.
local function walk(set, expected, latest)
  local n = most - looked
  if n < 1 then return false end
  local entries = behind(set, n)
  for i = 1, #entries, 2 do
    if full() then return false end
    local id, score = entries[i], tonumber(entries[i + 1])
    if score > latest then return true end
    looked = looked + 1
    if not visit(id, expected, expected == 'aggregating' and score or nil) then cursor = entries[i + 1] .. ' ' .. id end
  end
  return #entries < 2 * n
end

-- walk_list visits a list from its left, where asynq adds. Jobs that come meanwhile shift
-- it to the right, so that some are looked at twice and none is missed.
local function walk_list(list, expected)
  local first = tonumber(cursor) or 0
  local ids = read('LRANGE', list, first, first + most - 1)
  local n = 0
  for i, id in ipairs(ids) do
    if full() then break end
    n, looked = i, looked + 1
    visit(id, expected, nil, first + i - 1)
  end
  if marked > 0 then plan('LREM', list, marked, MARK) end
  cursor = int(first + n - marked)
  return n == #ids and #ids < most
end

local done, lanes_done, state = false, 0, ''
if place == 'lanes' then
  for i = 15, #ARGV do
    if full() then break end
    local lane = ARGV[i]
    looked = looked + 1
    local whole = true
    attempt('lane ' .. lane, function() whole = walk(lane_key(lane), 'aggregating', math.huge) end)
    if not dry then attempt('lane ' .. lane, function() lane_close(lane, now, true) end) end
    if not whole then break end
    lanes_done, cursor = lanes_done + 1, ''
  end
  done = lanes_done == #ARGV - 14
elseif place == 'id' then
  local task = job_read(ARGV[15])
  state = task and task.state or ''
  looked, done = 1, true
  local score = state == 'aggregating' and read('ZSCORE', lane_key(task.group), ARGV[15])
  visit(ARGV[15], nil, score and tonumber(score))
  if state == 'aggregating' and not dry then attempt('lane ' .. task.group, function() lane_close(task.group, now, true) end) end
elseif place == 'pending' or place == 'active' then
  done = walk_list(asynq .. place, place)
elseif place == 'archive' then
  done = walk(OURS, 'archived', began)
else
  done = walk(asynq .. place, place, place == 'archived' and math.floor(began / 1000000) or math.huge)
end

if matched > 0 and not dry then
  -- All slices of a verb have one entry, which always shows the count so far.
  local before = tonumber(ARGV[12])
  local share, text = string.match(ARGV[11], '^(%S+) (.*)$')
  if before > 0 then plan('LREM', audit_key(share), 1, text .. int(before) .. '}') end
  audit_add(share, text .. int(before + matched) .. '}')
end
return {done and 1 or 0, cursor, lanes_done, looked, matched, late, held, state}
