-- enqueue.lua: accept jobs. Each one is accepted, known already, or refused by itself.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   line: an id of a sequence of calls, each of which is sent after the answer to the
--           one before; '' if the call is never repeated
-- ARGV[3]   number of the call in its line; it stays the same when the call is repeated
-- ARGV[4]   again: 1 if an earlier try of the call may have arrived, or may still arrive
-- ARGV[5..] six for each job:
--   id, msg (asynq's encoding, without group), tenant (escaped),
--   attributes ("kind=KIND;name=value;..." escaped), digest (of the job's content),
--   more: '' if it is "1 1  1 0 0  0 ", else these, with a space between them:
--     fresh (1: the id was made for this call, so no other job has it),
--     cost, costs ("unit=n;..." or ''), band (0 high, 1 normal, 2 low),
--     deadline µs or 0, due (whole Unix seconds) or 0 for now,
--     unique (the key that the job holds, or ''),
--     window (µs for which it holds the key; 0: until it ends),
--     next (its follow-ups as JSON, or '')
-- Returns   for each job {answer, a, b}:
--   {1}  accepted         {0, state, id} the same job is there already; state '': it was deleted
--   {-1} another job has this id or key {-2, depth, cap} the tenant's backlog is full
--   {-3, limit, most, cost, unit} the limit never admits that many permits
--   {-4, depth, cap} the queue's backlog is full
--   {-5, fault} what Redis holds for the job or its queue is damaged
-- Bound: the jobs that the caller passes, each with one task, one lane and one key.
-- Full memory: it makes none of its writes, so that no job is accepted that cannot be stored.
--
-- A reply may be lost, and the jobs may be done and deleted when the call is repeated. So
-- the answers are kept for as long as a try may arrive, or until the next call of the
-- line. If no job was accepted, they are kept only after an earlier try, which might
-- still arrive and be accepted.
local FIRST, WORDS = 5, 6
local now = clock()
local line, number, again = ARGV[2], ARGV[3], ARGV[4]
if line ~= '' then
  local answers = answers_read(read('GET', answers_key(line)), number)
  if answers then return cjson.decode(answers) end
end

-- The writes for the jobs of this call are only planned, so Redis does not show them yet.
local accepted = {}         -- the accepted jobs, in order
local jobs, keys = {}, {}   -- id -> {state, digest, done, unique}; unique key -> id
local added, total = {}, 0  -- tenant -> how many more jobs wait; their sum
local depths, lengths = {}, {}

local function job_of(id)
  return jobs[id] or read('HMGET', task_key(id), 'state', 'hg_digest', 'hg_done', 'hg_unique')
end

-- holder returns the answer if a job holds the key; nil if no job does.
local function holder(unique, window, digest)
  local id = keys[unique] or read('GET', unique_key(unique))
  if not id then return nil end
  local there = job_of(id)
  if window == '0' and (not there[1] or there[3] or there[1] == 'archived' or there[1] == 'completed') then return nil end
  if there[1] and there[2] ~= digest then return {-1} end
  -- While a key is asked for, it must not expire before its job ends, however long that
  -- waits.
  if window == '0' and there[4] == unique and there[1] ~= 'scheduled' then
    plan('SET', unique_key(unique), id, 'PX', int(KEY_MS))
  end
  return {0, there[1] or '', id}
end

-- full returns the answer if a backlog has reached its cap; nil otherwise.
local function full(tenant)
  local cap, whole = config().max_backlog or 0, config().max_queue or 0
  if cap == 0 and whole == 0 then return nil end
  local known = depths[tenant] or read('HMGET', headgate .. 'backlog', tenant, '*')
  depths[tenant] = known
  local depth, all = (tonumber(known[1] or 0) or 0) + (added[tenant] or 0), (tonumber(known[2] or 0) or 0) + total
  if whole > 0 and all >= whole then return {-4, all, whole} end
  if cap > 0 and depth >= cap then return {-2, depth, cap} end
end

-- too_costly returns the answer for a job that needs more permits than a limit ever
-- admits at once; nil otherwise. It reads only b of the limits, so it needs no calendars.
local function too_costly(tenant, cost, more)
  if cost == '1' and more == '' then return nil end
  local own, costs = tenant_config(tenant, now), costs_read(cost, more)
  for _, limit in ipairs(config().limits) do
    local spec, n = own.l[limit.name] or limit.spec, costs[limit.unit or ''] or 0
    if spec.a ~= 'cc' and spec.b > 0 and n > spec.b then return {-3, limit.name, spec.b, n, limit.unit or ''} end
  end
end

local function more_read(more)
  if more == '' then return '1', '1', '', '1', '0', '0', '', '0', '' end
  return string.match(more, '^([01]) (%d+) (%S*) (%d) (%d+) (%d+) (%S*) (%d+) (.*)$')
end

local function decide(i)
  local id, msg, tenant, attributes, digest, rest = unpack(ARGV, i, i + WORDS - 1)
  local fresh, cost, more, band, deadline, due, unique, window, following = more_read(rest)
  local key = task_key(id)
  if fresh == '1' then
    types[key] = 'hash' -- the key does not exist, so nothing has to be read
  else
    local there = job_of(id)
    if there[1] then return there[2] == digest and {0, there[1], id} or {-1} end
  end
  local refusal
  if unique ~= '' then refusal = holder(unique, window, digest) end
  refusal = refusal or full(tenant) or too_costly(tenant, cost, more)
  if refusal then return refusal end

  local lane = lane_name(tenant, attributes)
  -- Jobs of one call keep their order: each is placed 1 µs after the one before.
  local place = tonumber(band) * BAND + (i - FIRST) / WORDS
  local state = due == '0' and 'aggregating' or 'scheduled'
  local fields = {'msg', with_group(msg, lane), 'group', lane, 'state', state, 'hg_digest', digest}
  local function field(name, value) fields[#fields + 1] = name; fields[#fields + 1] = value end
  if cost ~= '1' then field('hg_cost', cost) end
  if more ~= '' then field('hg_costs', more) end
  if following ~= '' then field('hg_next', following) end
  if deadline ~= '0' then field('hg_deadline', deadline) end
  if unique ~= '' and window == '0' then field('hg_unique', unique) end
  if due ~= '0' then field('hg_slot', slot_write(0, 0, place + tonumber(due) * 1000000)) end
  plan('HSET', key, unpack(fields))
  if deadline ~= '0' then plan('ZADD', headgate .. 'deadlines', deadline, id) end
  if unique ~= '' then
    -- asynq's tools delete a job and leave its key, which must not stay forever.
    local ms = math.ceil(tonumber(window) / 1000)
    if window == '0' then ms = KEY_MS + math.max(0, tonumber(due) * 1000 - math.floor(now / 1000)) end
    plan('SET', unique_key(unique), id, 'PX', int(ms))
  end
  if due == '0' then
    lengths[lane] = lengths[lane] or lane_length(lane)
  else
    plan('ZADD', asynq .. 'scheduled', due, id)
  end

  jobs[id] = {state, digest, false, window == '0' and unique}
  if unique ~= '' then keys[unique] = id end
  if due == '0' then
    added[tenant], total = (added[tenant] or 0) + 1, total + 1
    accepted[#accepted + 1] = {id = id, lane = lane, position = place + now}
  else
    accepted[#accepted + 1] = {id = id}
  end
  return {1}
end

local results = {}
for i = FIRST, #ARGV, WORDS do
  local what, answer = 'enqueue ' .. ARGV[i], nil
  if not attempt(what, function() answer = decide(i) end) then answer = {-5, faults[what]} end
  results[#results + 1] = answer
end

for _, job in ipairs(accepted) do
  if job.lane then
    if lengths[job.lane] == 0 then
      announces = headgate .. 'wake'
      lane_open(job.lane, job.id, job.position)
      wake(job.lane, now)
    else
      -- A lane with jobs is listed already, and the dispatcher knows it.
      lane_append(job.lane, job.id, job.position)
    end
    lengths[job.lane] = lengths[job.lane] + 1
    note_length(job.lane, 1)
    note_band(job.lane, job.position)
  end
end
for tenant, n in pairs(added) do backlog_add(tenant, n) end
if #accepted > 0 then count(headgate .. 'totals', 'enqueued', #accepted) end
if line ~= '' and (#accepted > 0 or again == '1') then
  plan('SET', answers_key(line), answers_write(number, cjson.encode(results)), 'PX', ANSWERS_MS)
end
return results
