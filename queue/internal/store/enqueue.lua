-- enqueue.lua: accept jobs. Each one is accepted, known already, or refused by itself.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   line: an id of a sequence of calls, each of which is sent after the answer to the
--           one before; '' if the call is never repeated
-- ARGV[3]   number of the call in its line; it stays the same when the call is repeated
-- ARGV[4]   again: 1 if an earlier try of the call may have arrived, or may still arrive
-- ARGV[5]   layout: the field 'layout' of the limits by which the caller chose the partition; '<' follows if
--           the tenants move and it is the one that they leave, '>' if it is the one where they arrive
-- ARGV[6..] six for each job:
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
--   {-1} another job has this id or key
--   {-2, jobs, most, bytes, most bytes} the tenant's backlog is full; 0 for no cap
--   {-3, limit, most, cost, unit} the limit never admits that many permits
--   {-4, jobs, most, bytes, most bytes} the same for the whole queue
--   {-5, fault} what Redis holds for the job or its queue is damaged
--   {-6} the queue has other partitions than the caller knows, or the tenant is not here any more or not yet
-- Bound: the jobs that the caller passes, each with one task, one lane and one key.
-- Full memory: it makes none of its writes, so that no job is accepted that cannot be stored.
--
-- A reply may be lost, and the jobs may be done and deleted when the call is repeated. So
-- the answers are kept for as long as a try may arrive, or until the next call of the
-- line. If no job was accepted, they are kept only after an earlier try, which might
-- still arrive and be accepted.
local FIRST, WORDS = 6, 6
local SOON_US = 5000000
local now = clock()
local line, number, again = ARGV[2], ARGV[3], ARGV[4]
if line ~= '' then
  local answers = answers_read(read('GET', answers_key(line)), number)
  if answers then return cjson.decode(answers) end
end

-- The writes for the jobs of this call are only planned, so Redis does not show them yet.
local accepted = {}         -- the accepted jobs, in order
local jobs, keys = {}, {}   -- id -> {state, digest, done, unique}; unique key -> id
local depths, firsts = {}, {} -- firsts: lane -> position of its first job; math.huge: it has none
local stored, grown = {}, {jobs = 0, units = 0} -- by tenant and of all: what this call adds

local function job_of(id)
  if jobs[id] then return jobs[id] end
  local job = read('HMGET', task_key(id), 'state', 'hg_body', 'hg_done', 'hg_unique')
  job[2] = body_read(job[2]) or false
  return job
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

-- full returns the answer if a cap leaves no place for a job of this size; nil otherwise.
-- asynq's tools delete jobs without counting them. So before a refusal the count is compared with
-- the number of all jobs there are, and if it is higher, the difference is not held against anybody.
local known_jobs
local function all_jobs()
  if known_jobs then return known_jobs end
  known_jobs = waiting_jobs('*') + read('LLEN', asynq .. 'pending') + read('LLEN', asynq .. 'active')
  for _, set in ipairs({'scheduled', 'retry', 'archived', 'completed'}) do known_jobs = known_jobs + read('ZCARD', asynq .. set) end
  known_jobs = known_jobs + read('ZCARD', headgate .. 'archive')
  return known_jobs
end

local function without_ghosts(jobs, units, all)
  local ghosts = all - all_jobs()
  if ghosts <= 0 then return jobs, units end
  local left = math.max(jobs - ghosts, 0)
  return left, jobs > 0 and units * left / jobs or 0
end

local function beyond(jobs, units, size, most, most_bytes)
  return (most > 0 and jobs >= most) or (most_bytes > 0 and (units + size) * SIZE_UNIT > most_bytes)
end

local function full(tenant, size)
  local c = config()
  local most, most_bytes, whole, whole_bytes = c.max_backlog or 0, c.max_backlog_bytes or 0, c.max_queue or 0, c.max_queue_bytes or 0
  if most + most_bytes + whole + whole_bytes == 0 then return nil end
  local known = depths[tenant] or read('HMGET', headgate .. 'tenants', tenant, '*')
  depths[tenant] = known
  local _, _, all = tenant_read(known[2])
  local function look(code, text, added, cap, cap_bytes)
    local _, _, jobs, units = tenant_read(text)
    if not jobs then return nil end -- the fault is told when the counts are written
    if not beyond(jobs + added.jobs, units + added.units, size, cap, cap_bytes) then return nil end
    jobs, units = without_ghosts(jobs, units, all or 0)
    jobs, units = jobs + added.jobs, units + added.units
    if beyond(jobs, units, size, cap, cap_bytes) then return {code, jobs, cap, int(units * SIZE_UNIT), int(cap_bytes)} end
  end
  return look(-4, known[2], grown, whole, whole_bytes) or look(-2, known[1], stored[tenant] or {jobs = 0, units = 0}, most, most_bytes)
end

local function more_read(more)
  if more == '' then return '1', '1', '', '1', '0', '0', '', '0', '' end
  return string.match(more, '^([01]) (%d+) (%S*) (%d) (%d+) (%d+) (%S*) (%d+) (.*)$')
end

local function decide(i)
  -- Clients know the partitions of a queue for some seconds. If it has others meanwhile, nobody would serve a
  -- job in one that is gone, nor find it, and a tenant with jobs in two would have two sets of permits.
  local id, msg, tenant, attributes, digest, rest = unpack(ARGV, i, i + WORDS - 1)
  if not is_home(ARGV[5], tenant) then return {-6} end
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
  local size = size_of(#msg + #following)
  refusal = refusal or full(tenant, size) or too_costly(tenant, cost, more, now)
  if refusal then return refusal end

  local lane = lane_name(tenant, attributes)
  -- Jobs of one call keep their order: each is placed 1 µs after the one before.
  local place = tonumber(band) * BAND + (i - FIRST) / WORDS
  local state = due == '0' and 'aggregating' or 'scheduled'
  local fields = {'msg', with_group(msg, lane), 'group', lane, 'state', state, 'hg_body', body_write(digest, size)}
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
    firsts[lane] = firsts[lane] or lane_first(lane)
  else
    plan('ZADD', asynq .. 'scheduled', due, id)
    -- The dispatcher may not look before this job is due.
    if tonumber(due) * 1000000 - now < SOON_US then announcement = '' end
  end

  local mine = stored[tenant] or {jobs = 0, units = 0, waiting = 0}
  stored[tenant] = mine
  for _, sum in ipairs({mine, grown}) do sum.jobs, sum.units = sum.jobs + 1, sum.units + size end
  jobs[id] = {state, digest, false, window == '0' and unique}
  if unique ~= '' then keys[unique] = id end
  if due == '0' then
    mine.waiting = mine.waiting + 1
    accepted[#accepted + 1] = {id = id, lane = lane, position = place + now}
  else
    accepted[#accepted + 1] = {id = id}
  end
  return {1}
end

local results = {}
for i = FIRST, #ARGV, WORDS do
  local what, answer = 'enqueue ' .. ARGV[i], nil
  if not attempt(what, function() answer = decide(i) end) then
    answer = {-5, faults[what]}
  end
  results[#results + 1] = answer
end

for _, job in ipairs(accepted) do
  if job.lane then
    local first = firsts[job.lane]
    if first == math.huge then
      lane_open(job.lane, job.id, job.position)
    else
      lane_append(job.lane, job.id, job.position) -- a lane with jobs is listed already
    end
    if job.position < first then
      -- The dispatcher does not know the lane, or when this job may go.
      announcement = ''
      wake(job.lane, now, true)
      firsts[job.lane] = job.position
    end
    note_length(job.lane, 1)
    note_band(job.lane, job.position)
  end
end
for tenant, sum in pairs(stored) do tenant_add(tenant, sum.waiting, 0, sum.jobs, sum.units) end
if #accepted > 0 then count(headgate .. 'totals', 'enqueued', #accepted) end
if line ~= '' and (#accepted > 0 or again == '1') then
  plan('SET', answers_key(line), answers_write(number, cjson.encode(results)), 'PX', ANSWERS_MS)
end
return results
