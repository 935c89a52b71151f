-- settle.lua: the results of calls, and where their jobs go, in one round trip for all.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   calendars as JSON, '' for none; 'none' if no limit is touched
-- ARGV[3]   pickup_us: how long a worker usually takes to pick a job up
-- ARGV[4]   day of asynq's counters, YYYY-MM-DD, and ARGV[5] when those of a day expire, Unix
--           seconds
-- ARGV[6..] thirteen for each job: id, owner, tenant, kind (both escaped), outcome, pause_us, why,
--           actual, told, text, record, to, message
--   outcome  'done'    the call succeeded: it must never be made again
--            'failed'  it ended for good without success, and must not be called again
--                      unless an operator retries it; its slot is used up
--            'keep'    not called: the job keeps its slot for another worker, unless text
--                      is 'passed'
--            'free'    failed: the slot is used up
--            'unsure'  the same, and the provider may have acted on it
--            'refused' not called, or the provider did nothing: the slot is used up, and this
--                      was not the first run
--            'alone'   about to be called with no other call in flight (see suspects.go)
--            'beside'  about to be called; other calls may be in flight
--            'away'    its end is known, and its follow-ups are enqueued, or text says which
--   pause_us for how long from now the provider wants no calls; 0: it does not say so
--   why      what is to pause, and the provider's words: "tenant REASON", "account REASON" or
--            "endpoint REASON". A sign after the first word makes it a hold: '=' for exactly
--            this long, '+' with growing length, '!' the same, and the endpoint could not be
--            connected to. Before it, for a probe: "?up " it got an answer, "?none " it was
--            not called
--   actual   what the call used of metered limits, "unit=n;...", or ''
--   told     what the provider said of its own limits, and the receiver of what was sent: see hear in
--            lanes.lua; or ''
--   text     for 'done': the result; for 'failed': "<outcome> <reason>"; for 'away': the new
--            hg_followed, '' if it does not change
--   record   for a run that ended: "<outcome> <answer> <attempt> <called_us> <took_us> <again_us>
--            <kept 1|0> <taken> <attributes> <reason>", else ''. answer is empty if no call was made, again_us is
--            from now until the job may be tried again, kept 1: the job is kept once it is done
--   to       where it goes: 'gone' it is deleted; 'kept SECONDS' it is completed and kept;
--            'archived'; 'retry US FAILED' into the retry set for that long, FAILED 1 or 0;
--            'lane' back to its lane; '' it stays with the worker. A job with follow-ups that
--            ends stays, too, until it is 'away'
--   message  the new message of the task; '' if it does not change
-- Returns   for each job 1, 2 if it ended and has follow-ups, or 0 if it does not belong to
--           this worker any more (then nothing was written); plus 4 if the lanes of its tenant
--           are to be swept, or 8 if all lanes are. The last number is how many lanes were woken
-- Bound: 100 jobs.
-- Full memory: it runs (allow-oom): it deletes most jobs, and the others grow by a reason, a
-- result and a log, which are bounded.
local now = clock()
-- Jobs end even if the limits are damaged.
if ARGV[2] ~= 'none' then attempt('limits', function() set_calendars(ARGV[2]) end) end
local results, woken = {}, 0

-- How many tenants' calls must fail to connect before an endpoint is held for all.
local MAX_UNREACHABLE = 3

-- hold_scope begins a hold of what failed, and returns its scope; and the scope of the
-- endpoint for all tenants, if calls could not connect to it.
local function hold_scope(who, sign, lane, tenant, kind, length, reason, tries)
  local endpoint = endpoint_of(lane)
  local function hold(scope)
    local probing = false
    for _, entry in ipairs(tries or {}) do probing = probing or entry[1] == scope end
    hold_begin(scope, length, sign == '=', probing, reason, now)
  end
  local scope = account_scope(kind, tenant)
  if who == 'account' then
    scope = account_scope(kind)
  elseif who == 'endpoint' and endpoint then
    scope = endpoint_scope(tenant, endpoint)
  end
  hold(scope)
  if sign ~= '!' or not endpoint then return scope end
  local set = headgate .. 'unreachable:' .. endpoint
  local n = read('SCARD', set)
  if n < MAX_UNREACHABLE and read('SISMEMBER', set, tenant) == 0 then
    plan('SADD', set, tenant)
    n = n + 1
  end
  plan('PEXPIRE', set, int(math.ceil(2 * GROWTH * length / 1000)))
  if n >= MAX_UNREACHABLE then hold(host_scope(endpoint)) end
  return scope, host_scope(endpoint)
end

-- tried ends the holds whose probe the job was, except those that it began again. It
-- returns which lanes are to be swept: 0 none, 4 those of its tenant, 8 all.
local function tried(tries, came, scope, host)
  local ask = 0
  for _, entry in ipairs(tries) do
    local of = entry[1]
    if of ~= scope and of ~= host then
      if came == 'none' then
        hold_untried({entry}, now)
      else
        pause_end(of)
        local endpoint = scope_endpoint(of)
        if endpoint then plan('DEL', headgate .. 'unreachable:' .. endpoint) end
      end
      ask = math.max(ask, scope_is_shared(of) and 8 or 4)
    end
  end
  return ask
end

-- hold_back stops the buckets of the tenant, of the endpoint, or those that all share.
local function hold_back(lane, tenant, length, who, sign, reason)
  local limits, list = lane_limits(lane, now), {}
  if who == 'account' then
    list = limits.shared
  else
    for _, entry in ipairs(limits.own) do
      if (who == 'endpoint' and entry.endpoints) or (who ~= 'endpoint' and entry.tenants) then list[#list + 1] = entry end
    end
  end
  -- Buckets stop a little longer, so that the first calls are in workers' hands when they
  -- may go, and none catches up with the one before it.
  pause_all(list, now, now + length + tonumber(ARGV[3]), reason)
  if sign == '' then pause(who == 'account' and '*' or tenant, now + length, 'provider', reason) end
end

-- pauses_of begins and ends pauses as the end of a job requires, and returns which lanes
-- are to be swept.
local function pauses_of(lane, tenant, kind, id, length, why, wanted)
  local came, rest = string.match(why, '^%?(%a+) (.*)$')
  local who, sign, reason = string.match(rest or why, '^(%a+)([=+!]?) (.*)$')
  local tries, scope, host
  if came then tries = select(3, paused_until(tenant, kind, endpoint_of(lane), id)) end
  if length > 0 and who and wanted then
    if sign ~= '' then scope, host = hold_scope(who, sign, lane, tenant, kind, length, reason, tries) end
    -- A provider that is down does not mean that calls are too fast: its limits stay as
    -- they are.
    if sign == '' or (sign == '=' and who == 'endpoint') then hold_back(lane, tenant, length, who, sign, reason) end
  end
  if not tries then return 0 end
  local ask = tried(tries, came, scope, host)
  if ask > 0 then
    wake(lane, now, true)
    woken = woken + 1
  end
  return ask
end

-- log_run returns the log of a job with the run that ended. The reason is beside the
-- answer if a call was made, otherwise beside what follows.
local function log_run(known, released, position, length, why, run)
  local lines, rest = log_begin(known, released, position), run.reason
  if run.answer ~= '' then
    lines = lines .. log_line(run.called, 'called', run.attempt)
      .. log_line(run.called + run.took, 'answered', run.attempt, '', '', run.answer, rest)
    rest = ''
  end
  if length > 0 then
    local who = string.match((string.gsub(why, '^%?%a+ ', '')), '^%a+')
    lines = lines .. log_line(now, 'paused', run.attempt, '', int(now + length), '', who or '')
  end
  if run.outcome == 'retried' then
    lines = lines .. log_line(now, 'retry', run.attempt, '', int(now + run.again), '', rest)
  elseif run.outcome == 'postponed' or run.outcome == 'parked' then
    lines = lines .. log_line(now, 'parked', run.attempt, '', int(now + run.again), '', rest)
  elseif run.outcome == 'throttled' then
    if rest ~= '' then lines = lines .. log_line(now, 'parked', run.attempt, '', '', '', rest) end
  else
    lines = lines .. log_line(now, 'ended', run.attempt, '', '', '', run.outcome .. (rest ~= '' and ': ' .. rest or ''))
  end
  return log_add(known, lines)
end

-- go plans where a job that leaves its worker goes.
local leaving, deleted = {}, {}
local processed, failures = 0, 0
local function go(id, task, failed_now, to, msg, lane, c, position)
  local what, n, failed = string.match(to, '^(%l+) ?(%d*) ?(%d?)$')
  local key = task_key(id)
  try('LREM', asynq .. 'active', -1, id)
  local state
  -- The lock that asynq's own client took for a task is released when the task is done.
  if what == 'gone' or what == 'kept' then unlock(id, task.lock) end
  if what == 'gone' then
    deleted[#deleted + 1] = key
    -- A job that asynq's own client enqueued was not counted.
    local _, size = body_read(task.body)
    if size then tenant_add(tenant_of(lane), 0, 0, -1, -size) end
  elseif what == 'kept' then
    state = 'completed'
    plan('ZADD', asynq .. 'completed', int(math.floor(now / 1000000) + tonumber(n)), id)
  elseif what == 'archived' then
    archive_add(id, now)
    -- Without its mark it is called again if an operator retries it.
    if failed_now or task.done == '0' then
      plan('HDEL', key, 'hg_done', 'hg_followed')
      count(key, 'hg_ends', 1)
    end
  elseif what == 'retry' then
    state = 'retry'
    plan('ZADD', asynq .. 'retry', int(math.ceil((now + tonumber(n)) / 1000000)), id)
  elseif what == 'lane' then
    local first = to_lane(lane, id, position or BAND + now, now, c > now)
    if first or c > now then announcement = '' end -- its slot is soon over, or the dispatcher does not know it
  else
    error(string.format('%q', to) .. ' is no place for a job', 0)
  end
  if what ~= 'gone' and (state or msg ~= '') then
    local fields = {}
    if state then fields[1], fields[2] = 'state', state end
    if msg ~= '' then fields[#fields + 1], fields[#fields + 2] = 'msg', msg end
    plan('HSET', key, unpack(fields))
  end
  leaving[#leaving + 1] = id
  if what == 'lane' or (what == 'retry' and failed == '0') then return end
  processed = processed + 1
  if what == 'archived' or what == 'retry' then failures = failures + 1 end
end

-- task_read reads the fields that every settlement needs, and task_read_rest those for
-- all but a plain success.
local function task_read(key)
  local t = read('HMGET', key, 'state', 'hg_owner', 'hg_done', 'group', 'hg_permits', 'hg_slot', 'hg_unique', 'hg_next', 'hg_deadline', 'unique_key', 'hg_body')
  return {
    state = t[1], owner = t[2], done = t[3], group = t[4], permits = t[5], slot = t[6], unique = t[7], follows = t[8], deadline = t[9], lock = t[10], body = t[11],
  }
end

local function task_read_rest(key, task)
  local t = read('HMGET', key, 'hg_released', 'hg_log', 'hg_first', 'hg_cost', 'hg_costs', 'hg_marks', 'hg_crashes', 'hg_called')
  task.released, task.log, task.first, task.cost, task.costs, task.marks, task.crashes, task.called = unpack(t, 1, 8)
end

-- settle_one plans everything for one job. It returns 0 if the job does not belong to
-- this worker any more, and otherwise the answer of this script for the job.
local function settle_one(id, owner, tenant, kind, outcome, length, why, actual, told, text, record, to, msg)
  local key = task_key(id)
  local task = task_read(key)
  if task.owner ~= owner or task.state ~= 'active' then return 0 end
  local ended, new = outcome == 'done' or outcome == 'failed', not task.done
  local follows = ended and task.follows
  local earliest, slot, position = slot_read(task.slot)
  local lane = task.group and task.group ~= '' and task.group or tenant
  local plainly = outcome == 'done' and actual == '' and not run_kept(record)
  local run, log
  if not plainly then
    task_read_rest(key, task)
    if new then run = run_read(record) end
  end
  if run and (outcome ~= 'done' or run.kept) then
    log = log_run(task.log, task.released, position, tonumber(length), why, run)
  end
  local fields = {}
  local function set(name, value) fields[#fields + 1], fields[#fields + 2] = name, value end
  if outcome == 'unsure' then set('hg_unsure', '1') end
  -- Its first run whose call may have been made began when it was released.
  if (outcome == 'unsure' or outcome == 'free' or outcome == 'failed') and not task.first then set('hg_first', first_run(task.released, now, owner)) end
  if follows and new then
    set('hg_followed', int(math.floor(now / 1000000)))
  elseif outcome == 'away' and text ~= '' then
    set('hg_followed', text)
  end
  local spent = outcome == 'refused' or outcome == 'unsure' or outcome == 'free'
  if outcome == 'done' and new then
    if follows or to ~= 'gone' then
      mark_done(key, text, log)
      stored_result(id, tenant_of(lane), task.body, text)
    end
    done_add(tenant)
  elseif outcome == 'failed' and new then
    mark_failed(key, text, log or task.log or '')
  end
  if spent or outcome == 'failed' then
    set('hg_slot', slot_write(0, 0, position or BAND + now))
    if log and spent then
      set('hg_log', log)
      set('hg_released', '')
    end
    if task.crashes and run and run.answer ~= '' then
      -- Its call ended. hg_unsure still says that earlier ones did not.
      set('hg_crashes', '0')
      plan('HDEL', key, 'hg_beside')
    end
    plan('HDEL', key, 'hg_called', 'hg_marks')
  elseif outcome == 'keep' and task.called then
    plan('HDEL', key, 'hg_called')
  end
  local kept, unused = outcome == 'keep' and text == '' and slot or 0, 0
  if outcome == 'keep' and slot > 0 then
    set('hg_slot', kept > 0 and slot_write(earliest, kept, position, now) or slot_write(0, 0, position))
    if kept == 0 then unused = slot end
  end
  if ended then free_key(id, task.unique) end
  if ended and task.deadline then plan('ZREM', headgate .. 'deadlines', id) end
  if outcome == 'alone' or outcome == 'beside' then set('hg_called', outcome) end
  if fields[1] then plan('HSET', key, unpack(fields)) end
  if ended or spent or outcome == 'away' then woken = woken + free_permits(id, task.permits, now) end
  if plainly and new then
    event(id, tenant, kind, 'done', 'ok', record)
  elseif run and (run.answer ~= '' or outcome == 'failed') then
    event(id, tenant, kind, run.outcome, run.answer, record)
  end
  if to ~= '' and not follows then go(id, task, outcome == 'failed' and new, to, msg, lane, kept, position) end
  if unused > 0 then
    attempt('lane ' .. lane, function()
      refund_all(lane_limits(lane, now).all, now, unused, costs_read(task.cost, task.costs), task.marks)
    end)
    plan('HDEL', key, 'hg_marks')
  end
  -- The job has ended, whatever happens here.
  if actual ~= '' and new then
    attempt('lane ' .. lane, function()
      correct_all(lane_limits(lane, now).all, now, slot, costs_read(task.cost, task.costs), costs_read('0', actual), task.marks)
    end)
  end
  if told ~= '' then
    attempt('lane ' .. lane, function() hear(lane_limits(lane, now), now, told) end)
  end
  local ask = 0
  if length ~= '0' or string.sub(why, 1, 1) == '?' then
    attempt('lane ' .. lane, function() ask = pauses_of(lane, tenant, kind, id, tonumber(length), why, new) end)
  end
  return (follows and 2 or 1) + ask
end

for i = 6, #ARGV, 13 do
  local understood, answer = attempt_job(ARGV[i], settle_one, unpack(ARGV, i + 1, i + 12))
  results[#results + 1] = understood and answer or 0
end
for name, n in pairs({processed = processed, failed = failures}) do
  if n > 0 then
    tally(asynq .. name, n)
    tally(asynq .. name .. ':' .. ARGV[4], n, tonumber(ARGV[5]))
  end
end
if deleted[1] then plan('DEL', unpack(deleted)) end
if leaving[1] then try('ZREM', asynq .. 'lease', unpack(leaving)) end
results[#results + 1] = woken
return results
