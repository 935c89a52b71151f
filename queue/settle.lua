-- settle.lua: what came of calls, in one round trip for all of them.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   calendars as JSON, '' for none; 'none' where no limit is touched
-- ARGV[3]   pickup_us: how long a worker usually takes to pick a job up
-- ARGV[4..] ten for each job: id, owner, tenant, kind (both escaped), outcome, pause_us, why, actual, text, record
--   outcome  'done'    the call succeeded: it must never be made again
--            'failed'  it ended for good without success: nor must this one, unless an
--                      operator runs it again; its slot is spent
--            'keep'    not called: the job keeps its slot for another worker
--            'free'    failed: the slot is spent
--            'unsure'  likewise, and the provider may have acted on it
--            'refused' not called, or the provider did nothing: likewise, and this run
--                      was not the first
--            'alone'   about to be called with nothing beside it (see suspects.go)
--            'beside'  the same, or other calls may be under way meanwhile
--   pause_us for how long from now the provider wants no calls; 0: it does not say so
--   why      who is to pause, and the provider's words: "tenant REASON" or "account REASON"
--   actual   what the call used of metered limits, "unit=n;...", or ''
--   text     of 'done': the result; of 'failed': "<outcome> <reason>"
--   record   of a run that ended: "<outcome> <answer> <attempt> <called_us> <took_us> <again_us>
--            <kept 1|0> <reason>", else ''; answer is empty when no call was made, again_us is
--            from now until the job may be tried again, kept: it is remembered once it is done
-- Returns   for each job 1, 2 when it ended and has follow-ups, or 0 when it is
--           not this worker's any more (then nothing was written); and at last
--           how many lanes may go on
local now = clock()
-- Jobs end also where the limits cannot be understood.
if ARGV[2] ~= 'none' then attempt('limits', function() set_calendars(ARGV[2]) end) end
local results, woken = {}, 0

-- The tenant's own buckets stop, or those that all share.
local function hold_back(lane, tenant, length, why)
  local who, reason = string.match(why, '^(%a+) (.*)$')
  local limits, list = lane_limits(lane, now), {}
  if who == 'account' then
    list = limits.shared
  else
    for _, entry in ipairs(limits.own) do
      if entry.tenants then list[#list + 1] = entry end
    end
  end
  -- Buckets stop a little longer: the first calls are in workers' hands when they
  -- may go, and none catches up with the one before it.
  pause_all(list, now, now + length + tonumber(ARGV[3]), reason)
  pause(who == 'account' and '*' or tenant, now + length, 'provider', reason)
end

-- log_run is the log of a job with the run that ended. What a call said stands
-- beside its answer; why there was none, beside what follows.
local function log_run(known, released, position, length, why, run)
  local lines, rest = log_begin(known, released, position), run.reason
  if run.answer ~= '' then
    lines = lines .. log_line(run.called, 'called', run.attempt)
      .. log_line(run.called + run.took, 'answered', run.attempt, '', '', run.answer, rest)
    rest = ''
  end
  if length > 0 then lines = lines .. log_line(now, 'paused', run.attempt, '', int(now + length), '', string.match(why, '^%a+')) end
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

local function run_read(text)
  local outcome, answer, attempt, called, took, again, kept, reason =
    string.match(text, '^(%l+) (%l*) (%d+) (%d+) (%d+) (%d+) (%d) (.*)$')
  if not outcome then return nil end
  return {
    outcome = outcome, answer = answer, attempt = attempt, called = tonumber(called), took = tonumber(took),
    again = tonumber(again), kept = kept == '1', reason = reason,
  }
end

-- settle_one plans what becomes of one job, and answers whether it is still this
-- worker's, and whether others follow it.
local function settle_one(id, owner, tenant, kind, outcome, length, why, actual, text, record)
  local ended = outcome == 'done' or outcome == 'failed'
  local key = task_key(id)
  local task = read('HMGET', key, 'hg_owner', 'hg_permits', 'hg_slot', 'hg_done', 'group', 'hg_unique', 'hg_released', 'hg_log',
    'hg_next', 'hg_first', 'hg_deadline', 'hg_cost', 'hg_costs', 'hg_marks', 'hg_crashes', 'hg_called')
  -- An owner who is through is marked, not forgotten: the same message may come
  -- twice when a reply was lost.
  local first = task[1] == owner
  if not first and task[1] ~= owner .. '!' then return 0 end
  local _, slot, position = slot_read(task[3])
  local lane = task[5] and task[5] ~= '' and task[5] or tenant
  local run, log
  if first and not task[4] then run = run_read(record) end
  if run and (outcome ~= 'done' or run.kept) then
    log = log_run(task[8], task[7], position, tonumber(length), why, run)
  end
  if (outcome == 'refused' or outcome == 'keep') and string.match(task[10] or '', ' (.*)$') == owner then
    plan('HDEL', key, 'hg_first')
  end
  local fields = {}
  local function set(name, value) fields[#fields + 1], fields[#fields + 2] = name, value end
  if outcome == 'unsure' then set('hg_unsure', '1') end
  local spent = outcome == 'refused' or outcome == 'unsure' or outcome == 'free'
  if outcome == 'done' and not task[4] then
    mark_done(key, text, log)
    count(headgate .. 'done', tenant, 1)
  elseif outcome == 'failed' and not task[4] then
    mark_failed(key, text, log or task[8] or '')
  end
  if spent or outcome == 'failed' then
    set('hg_slot', slot_write(0, 0, position or BAND + now))
    if log and spent then
      set('hg_log', log)
      set('hg_released', '')
    end
    if task[15] and run and run.answer ~= '' then
      -- Its call came to an end. That earlier ones did not stays known.
      set('hg_crashes', '0')
      plan('HDEL', key, 'hg_beside')
    end
    plan('HDEL', key, 'hg_called', 'hg_marks')
  elseif outcome == 'keep' and task[16] then
    plan('HDEL', key, 'hg_called')
  end
  if ended and task[6] and read('GET', headgate .. 'unique:' .. task[6]) == id then
    plan('DEL', headgate .. 'unique:' .. task[6])
  end
  if ended and task[11] then plan('ZREM', headgate .. 'deadlines', id) end
  if spent or outcome == 'keep' then
    set('hg_owner', owner .. '!')
  elseif outcome == 'alone' or outcome == 'beside' then
    set('hg_called', outcome)
  end
  if fields[1] then plan('HSET', key, unpack(fields)) end
  if ended or spent then woken = woken + free_permits(id, task[2], now) end
  if run and (run.answer ~= '' or outcome == 'failed') then
    event(id, tenant, kind, run.outcome, run.answer, run.attempt, int(run.took), run.reason)
  end
  -- The job has ended whatever becomes of this.
  if actual ~= '' and first and not task[4] then
    attempt('lane ' .. lane, function()
      correct_all(lane_limits(lane, now).all, now, slot, costs_read(task[12], task[13]), costs_read('0', actual), task[14])
    end)
  end
  if length ~= '0' then attempt('lane ' .. lane, function() hold_back(lane, tenant, tonumber(length), why) end) end
  return ended and task[9] and 2 or 1
end

for i = 4, #ARGV, 10 do
  local answer = 0
  attempt('job ' .. ARGV[i], function() answer = settle_one(unpack(ARGV, i, i + 9)) end)
  results[#results + 1] = answer
end
results[#results + 1] = woken
return results
