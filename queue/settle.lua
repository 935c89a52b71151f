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
--   why      who is to pause, and the provider's words: "tenant REASON", "account REASON" or
--            "endpoint REASON". A sign behind who makes it a hold: '=' until then, '+' with
--            growing pauses, '!' the same, and the endpoint could not be reached.
--            In front of it, of a probe: "?up " it was answered, "?none " it was not called
--   actual   what the call used of metered limits, "unit=n;...", or ''
--   text     of 'done': the result; of 'failed': "<outcome> <reason>"
--   record   of a run that ended: "<outcome> <answer> <attempt> <called_us> <took_us> <again_us>
--            <kept 1|0> <reason>", else ''; answer is empty when no call was made, again_us is
--            from now until the job may be tried again, kept: it is remembered once it is done
-- Returns   for each job 1, 2 when it ended and has follow-ups, or 0 when it is
--           not this worker's any more (then nothing was written), and with it 4 when
--           lanes of its tenant are to be asked anew, 8 when all are; and at last how
--           many lanes may go on
local now = clock()
-- Jobs end also where the limits cannot be understood.
if ARGV[2] ~= 'none' then attempt('limits', function() set_calendars(ARGV[2]) end) end
local results, woken = {}, 0

-- So many tenants whose calls could not connect hold an endpoint for all.
local MAX_UNREACHABLE = 3

-- hold_scope holds back what failed, and answers its scope.
local function hold_scope(who, sign, lane, tenant, kind, length, reason, tries)
  local endpoint = endpoint_of(lane)
  local function hold(scope)
    local probing = false
    for _, entry in ipairs(tries or {}) do probing = probing or entry[1] == scope end
    hold_begin(scope, length, sign == '=', probing, reason, now)
  end
  local scope = 'a:' .. kind .. ';' .. tenant
  if who == 'account' then
    scope = 'a:' .. kind
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
  if n >= MAX_UNREACHABLE then hold('h:' .. endpoint) end
  return scope, 'h:' .. endpoint
end

-- tried ends the holds that a probe tried, but those that it began anew, and answers
-- which lanes are to be asked anew: 0, 4 those of its tenant, 8 all.
local function tried(tries, came, scope, host)
  local ask = 0
  for _, entry in ipairs(tries) do
    local of, all = entry[1], string.find(entry[1], '^h:') or string.find(entry[1], '^a:[^;]*$')
    if of ~= scope and of ~= host then
      if came == 'none' then
        hold_untried({entry}, now)
      else
        pause_end(of)
        local endpoint = string.match(of, '^e:[^;]*;(.*)$') or string.match(of, '^h:(.*)$')
        if endpoint then plan('DEL', headgate .. 'unreachable:' .. endpoint) end
      end
      ask = math.max(ask, all and 8 or 4)
    end
  end
  return ask
end

-- The tenant's own buckets stop, or those that all share.
local function hold_back(lane, tenant, length, who, sign, reason)
  local limits, list = lane_limits(lane, now), {}
  if who == 'account' then
    list = limits.shared
  else
    for _, entry in ipairs(limits.own) do
      if (who == 'endpoint' and entry.endpoints) or (who ~= 'endpoint' and entry.tenants) then list[#list + 1] = entry end
    end
  end
  -- Buckets stop a little longer: the first calls are in workers' hands when they
  -- may go, and none catches up with the one before it.
  pause_all(list, now, now + length + tonumber(ARGV[3]), reason)
  if sign == '' then pause(who == 'account' and '*' or tenant, now + length, 'provider', reason) end
end

-- pauses_of does what a job's end says about pauses, and answers which lanes are to be
-- asked anew.
local function pauses_of(lane, tenant, kind, id, length, why, wanted)
  local came, rest = string.match(why, '^%?(%a+) (.*)$')
  local who, sign, reason = string.match(rest or why, '^(%a+)([=+!]?) (.*)$')
  local tries, scope, host
  if came then tries = select(3, paused_until(tenant, kind, endpoint_of(lane), id)) end
  if length > 0 and who and wanted then
    if sign ~= '' then scope, host = hold_scope(who, sign, lane, tenant, kind, length, reason, tries) end
    -- A provider that is down is not too slow: its limits stay as they are.
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

-- log_run is the log of a job with the run that ended. What a call said stands
-- beside its answer; why there was none, beside what follows.
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
  local ask = 0
  if length ~= '0' or string.sub(why, 1, 1) == '?' then
    attempt('lane ' .. lane, function() ask = pauses_of(lane, tenant, kind, id, tonumber(length), why, first and not task[4]) end)
  end
  return (ended and task[9] and 2 or 1) + ask
end

for i = 4, #ARGV, 10 do
  local answer = 0
  attempt('job ' .. ARGV[i], function() answer = settle_one(unpack(ARGV, i, i + 9)) end)
  results[#results + 1] = answer
end
results[#results + 1] = woken
return results
