-- dispatch.lua: bring due jobs back to their lanes, and hand over jobs that may go soon.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   max: how many jobs the caller can take (its free capacity)
-- ARGV[3]   max_ahead: how many of these may be released before their slot
-- ARGV[4]   horizon_us: how far ahead of now a slot may be
-- ARGV[5]   pickup_us: how long after the reply a job's call begins
-- ARGV[6]   calendars as JSON {id: [window starts]}, '' for none
-- ARGV[7]   the kinds that the caller handles, escaped, ',KIND,KIND,'
-- ARGV[8]   lease_us: how long the call of a probe may take
-- ARGV[9]   the caller's id, ARGV[10] the number of its first run: the owner of the n-th
--           job that is handed over is ID:(number + n - 1)
-- ARGV[11]  that number in the first of its calls that got no reply; 0: all got one
-- ARGV[12]  alone: how many jobs it may take and still lead, below 0: it is not to lead;
--           ARGV[13] lead_ms: how long a lead lasts. See lead.lua
-- ARGV[14]  born: what an earlier reply said of the limits; 0: nothing yet
-- Returns   {again_us, backlog, forwarded, full 1|0, enqueued, pauses, now_us, stepped 1|0,
--           understood 1|0, led_ms, jobs, born}
--   jobs      for each {id, message, answer, earliest_us, latest_us, crashes, base, first,
--             flags, accepted_us}; answer: see hand.lua; latest 0: no end
--     base    failed attempts that do not count any more
--     first   when the first run began whose call may have been made, µs
--     flags   1: an earlier run made a call whose result is unknown; 2: the job is the probe
--             of a hold; 4: it holds permits of concurrency limits
--     accepted_us  when it first came into its lane, or was due to; 0: not known
--   again_us  from now, when something may go next; -1: not before something changes
--   full      the caller has no room left
--   pauses    how often they were changed
--   stepped   the clock was set back: the times of waiting lanes are from before
--   understood  0: a key of the whole queue is damaged, and nothing was done
--   born      when the limits were first published in this Redis, µs; 0: never
--   led_ms    how long another worker leads; 0: the caller is to dispatch
-- Bound: in one call at most 100 jobs are forwarded from each set, 100 expire, 32 lanes are
-- looked at, 40 change their place, and 50 jobs are handed over, or as many as it takes for
-- their messages to exceed 2 MiB, however much waits.
--
-- A lane whose turn it is (run) looks at its next job. The first row that fits decides:
--
--   there is no job              no_job: remove the lane from all sets; or look at it again
--                                later if its jobs are damaged or were deleted
--   it, its limits, or the set   look at the lane again in 5 s
--   that it goes to are damaged
--   no handler for its kind      unserved_here: put the lane aside for a worker that has one
--   it is paused                 paused: the lane waits for the end of the pause, or for
--                                5 s if its tenant moves to another partition
--   no permit is left            no_permit: the lane waits for one in the blocked set
--   the caller has no room       no_room_left: end the round; the lane keeps its place
--   its last slot is still good  go_with_kept_slot: ask no limit; or later, if the slot is beyond
--                                the horizon: the lane waits for it
--   the lane had its share, or   not_its_turn: the lane waits for its own limits
--   they admit the job later
--   its deadline comes first     go_expired: the worker puts it away; no limit is charged
--   it is a suspect              go_without_slot: it asks for a slot when it runs alone
--   a shared limit with a unit   unit_used_up: the lane keeps its place, and those go on whose jobs
--   holds it for seconds         take nothing of the limit
--   its slot is too far ahead    too_far: end the round; the lane keeps its place
--   another lane is due first    later: the lane waits for its own limits
--   else                         go_with_slot: take the permits, hand the job over
--
-- After a row that begins with go_, the lane looks at its next job. Other rows end its turn.
-- Full memory: it runs (allow-oom), so that waiting jobs leave. It adds a mark, a slot and a
-- lease to existing jobs, no more of them than workers can hold, and a bucket for a tenant.
local now = clock()
without_queue = {0, 0, 0, 0, 0, 0, int(now), 0, 0, 0, {}, 0}
local horizon, pickup = now + tonumber(ARGV[4]), tonumber(ARGV[5])
local lease = tonumber(ARGV[8])
local MAX_RELEASED, MAX_LOOKS, MAX_CROWD, MAX_GHOSTS = 50, 32, 8, 16
local RETRY_US = 5000000 -- until a damaged lane is looked at again
-- Without the limits of the queue, nothing is released.
local kinds, born = {}, 0
local usable = attempt('limits', function() kinds, born = set_calendars(ARGV[6], tonumber(ARGV[14])) end)
-- Most queues have none of these, and one command checks that. asynq's tools can pause a
-- queue.
local unserved = headgate .. 'unserved'
local rare = read('EXISTS', asynq .. 'paused', headgate .. 'pauses', headgate .. 'overrides', headgate .. 'skips', unserved) > 0
if not rare then nothing_rare() end
local function exists(key)
  if not rare then return false end
  return read('EXISTS', key) == 1
end
usable = usable and not exists(asynq .. 'paused')
local room = math.max(0, math.min(tonumber(ARGV[2]), MAX_RELEASED))
-- no_room reports whether no more jobs may be handed over in this call.
local function no_room() return hand_full(room) end

-- handles reports whether the caller takes jobs of a kind, which the queue's limits list or do not
-- restrict: a job that came by another way must not be called under limits that are not its own.
local handled, listed = {}, {}
for _, name in ipairs(kinds) do listed[escape(name)] = true end
local function handles(kind)
  if handled[kind] == nil then
    handled[kind] = string.find(ARGV[7], ',' .. kind .. ',', 1, true) ~= nil and (kinds[1] == nil or listed[kind] == true)
  end
  return handled[kind]
end
local pausing = exists(headgate .. 'pauses')

-- 1. Forward: scheduled, retried and parked jobs whose time has come. Their lanes get
-- their turn in the next call, which sees the jobs there.
local forwarded, joined, moved = 0, {}, {}
-- due returns the ids of a set whose time has come; none if the key is damaged. unit: the
-- unit of its scores in µs. sets_due is when the first job of all these sets is due.
local sets_due = math.huge
local function due(set, unit)
  local ids = {}
  attempt(set, function()
    local at = tonumber(read('ZRANGE', set, 0, 0, 'WITHSCORES')[2])
    if not at then return end
    sets_due = math.min(sets_due, at * unit)
    if at * unit <= now then ids = read('ZRANGEBYSCORE', set, '-inf', int(math.floor(now / unit)), 'LIMIT', 0, 100) end
  end)
  return ids
end

-- settled reports whether a job only has to be put away: no limit, pause or window holds
-- it.
local function settled(job) return job.done or job.crashes >= 3 or (job.deadline > 0 and job.deadline <= now) end

if ARGV[11] ~= '0' then hand_lost(tonumber(ARGV[11]), now) end

-- without_slot drops a job's slot, which is not for the call that follows.
local function without_slot(job)
  job.e, job.c = 0, 0
  return job
end

local function join(job, lane, i, at_once)
  if job.group ~= lane then plan('HSET', task_key(job.id), 'group', lane) end
  if job.state == 'pending' and read('ZSCORE', lane_key(lane), job.id) then
    plan('HSET', task_key(job.id), 'state', 'aggregating') -- it is still in its lane
  else
    to_lane(lane, job.id, job.position or BAND + now + i, now, at_once)
  end
  joined[lane] = true
end

-- bring puts a job that has left its place where it belongs. It returns false if the job
-- is to be handed over and there is no room.
local function bring(job, i)
  if settled(job) then
    if no_room() then return false end
    hand(job, hand_answer(without_slot(job)), 0, 0, false, now, {'', ''})
    return true
  end
  local lane = job.group ~= '' and job.group or task_lane(job.msg)
  -- Slot and pending state mean that an operator let it go now, beyond its limits.
  local goes = job.state == 'pending' and job.e > 0 and job.c == 0 and job.e <= now + 10000000
  if goes and handles(escape(message_kind(job.msg))) then
    local paused, due = 0, nil
    if pausing then paused, due = paused_until(tenant_of(lane), escape(message_kind(job.msg)), endpoint_of(lane)) end
    if paused <= now and not due then
      if no_room() then return false end
      hand(job, 'go', job.e, 0, false, now, {'', ''})
      return true
    end
  end
  -- A slot that it still holds is used the next time its lane is looked at.
  join(job, lane, i, job.c > now)
  return true
end

for _, name in ipairs({'scheduled', 'retry'}) do
  local set = asynq .. name
  local ids = due(set, 1000000)
  for i, id in ipairs(ids) do
    local room = true
    local understood = attempt('job ' .. id, function()
      local job = hand_look(id)
      if job then room = bring(job, i) end
      if room then plan('ZREM', set, id) end
      moved[id] = true
    end)
    -- A damaged job stays, but not ahead of all others.
    if not understood then plan('ZADD', set, int(math.floor(now / 1000000) + 60), id) end
  end
  forwarded = forwarded + #ids
end

-- Jobs that asynq's clients and tools made pending go to their lanes, or are handed over.
local pending = {}
if usable then
  attempt(asynq .. 'pending', function() pending = read('LRANGE', asynq .. 'pending', -100, -1) end)
end
for i = #pending, 1, -1 do
  local id, room, twice = pending[i], true, moved[pending[i]]
  local understood = twice or attempt('job ' .. id, function()
    local job = hand_look(id)
    if job and job.state ~= 'pending' then error('it is pending, and its state is ' .. string.format('%q', job.state), 0) end
    if job then room = bring(job, #pending - i) end
    if room then plan('LREM', asynq .. 'pending', -1, id) end
    moved[id] = true
  end)
  if twice or not understood then plan('LREM', asynq .. 'pending', -1, id) end
  if not understood then push(asynq .. 'pending', id) end -- a damaged job stays, behind all others
  if not room then break end
  if understood then forwarded = forwarded + 1 end -- else there would be another round at once, for ever
end

-- 2. Expire: a worker puts away jobs whose deadline has passed; no limit, pause or window
-- holds them. A job that was just forwarded has its turn in the next call.
local deadlines, gone = headgate .. 'deadlines', {}
for _, id in ipairs(usable and due(deadlines, 1) or {}) do
  if no_room() then break end
  local understood = moved[id] or attempt('job ' .. id, function()
    local job = hand_look(id)
    local waits = job and (job.state == 'scheduled' or job.state == 'retry')
    if job and (waits or job.state == 'pending' or job.state == 'active' or job.state == 'aggregating') then
      -- Its worker checks the deadline. If the job comes back, it is checked here.
      plan('ZADD', deadlines, int(now + 5000000), id)
    else
      plan('ZREM', deadlines, id)
      return
    end
    if waits or job.state == 'aggregating' then
      if waits then
        plan('ZREM', asynq .. job.state, id)
      else
        lane_drop(job.group, id)
        lane_close(job.group, now, true)
        backlog_add(tenant_of(job.group), -1)
      end
      gone[id] = true
      hand(job, hand_answer(without_slot(job)), 0, 0, false, now, {'', '', 'hg_slot', slot_write(0, 0, job.position or BAND + now)})
    end
  end)
  if not understood then plan('ZADD', deadlines, int(now + 60000000), id) end
end

-- 3. Release.
local max_ahead = math.min(room, tonumber(ARGV[3]))
local released, ahead, next_due = #handed, 0, -1
local shared = {}
usable = usable and attempt('limits', function()
  local all = shared_limits(now)
  earliest_all(all, now, now, ONE)
  shared = all
end)

-- When a lane has its turn, its own limits may admit a job later than the shared limits
-- by a small part of their interval, such as the rounding of two equal rates. Without
-- patience for that it would lose its turn each time.
local patience = 1
for _, entry in ipairs(shared) do
  if KIND[entry.spec.a] == 'rate' then patience = math.max(patience, math.ceil(entry.spec.p / entry.spec.r / 256)) end
end

-- Start-time fair queueing: each ready lane has a virtual start time. The lane with the
-- least goes first, and a job moves its tenant on by cost / weight. A tenant that was
-- away starts two typical jobs before the queue's virtual time. So absence earns no more
-- credit than that, and a lane that its own limit holds for a moment when its turn comes
-- does not lose the turn.
--
-- A job's part of the queue is its cost. If shared limits also count in other units, it
-- is the time that the job takes of the limit of which it takes most. The typical part
-- follows the median of the last seven jobs, so that no single job determines it.
local vtime = headgate .. 'vtime'
local known = read('HMGET', vtime, '*', '*unit', '*parts', '*clock', '*typical', '*firsts', '*idle')

local virtual, looked_at = score_read(known[1]), score_read(known[4])
local stepped = looked_at > now + 500000
local unit, reset = 'permits', false
for _, entry in ipairs(shared) do
  if entry.unit ~= '' then unit = 'time' end
end
local parts = {}
if (known[2] or 'permits') == unit then
  parts = parts_read(known[3])
else
  -- What was counted in the other unit is dropped. The ready lanes keep their order.
  local last = read('ZRANGE', headgate .. 'ready', -1, -1, 'WITHSCORES')
  virtual, reset = math.max(virtual, score_read(last[2])), true
end

local function median()
  local sorted = {unpack(parts)}
  table.sort(sorted)
  return sorted[math.ceil(#sorted / 2)]
end
local typical = score_read(known[5])
if reset or typical <= 0 then typical = 1 end

-- firsts is how much of the queue went to tenants that started before the virtual time: their own limits
-- had held them back. Who leases a shared limit to the partition gives it as much more.
local firsts, leased = score_read(known[6]), false
for _, entry in ipairs(shared) do leased = leased or entry.spec.leased end

local function part_of(costs)
  if unit == 'permits' then return costs[''] end
  local most = 0
  for _, entry in ipairs(shared) do
    local spec, n = entry.spec, share_of(entry, costs)
    most = math.max(most, KIND[spec.a] == 'rate' and n * spec.p / spec.r or n * 1000000 / spec.b)
  end
  return most
end

-- finish holds the virtual finish times of tenants; `was` those in Redis.
local finish, was = {}, {}
local function finish_of(tenant)
  if not finish[tenant] and was[tenant] == nil then
    was[tenant] = reset and 0 or score_read(read('HGET', vtime, tenant))
  end
  return finish[tenant] or was[tenant]
end

local function start_of(lane)
  local limits = lane_limits(lane, now)
  local tenant = limits.tenant
  local start = math.max(virtual - 2 * typical / limits.w, finish_of(tenant))
  finish[tenant] = start + typical / limits.w -- as if its next job were typical; run corrects it
  return start
end

-- The first lanes of both sets are read once, and their new places are written once.
-- ready and waiting are lists of {score, lane} in Redis's order. ready_beyond and
-- waiting_beyond are the scores of the first lanes that were not read.
local function before(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end

local function window(entries, n)
  local list, beyond = {}, math.huge
  for i = 1, #entries, 2 do
    -- A score that is out of range counts as 0, and comes first.
    local score = score_read(entries[i + 1])
    if i > 2 * n then
      beyond = score
    elseif not joined[entries[i]] then
      list[#list + 1] = {score, entries[i]}
    end
  end
  return list, beyond
end

local in_line = read('ZRANGE', headgate .. 'ready', 0, MAX_LOOKS, 'WITHSCORES')
local ready, ready_beyond = window(in_line, MAX_LOOKS)
local waiting, waiting_beyond = window(read('ZRANGE', headgate .. 'waiting', 0, MAX_LOOKS, 'WITHSCORES'), MAX_LOOKS)
if waiting_beyond <= now then
  -- Many lanes are due at once, such as all that waited for midnight. A few of them
  -- become ready at a time, beside the lanes that came due last: those belong to tenants
  -- whose jobs go all the time.
  local mine = {}
  while #waiting > MAX_CROWD do waiting_beyond = table.remove(waiting)[1] end
  for _, entry in ipairs(waiting) do mine[entry[2]] = true end
  local late = read('ZREVRANGEBYSCORE', headgate .. 'waiting', int(now), '-inf', 'WITHSCORES', 'LIMIT', 0, MAX_LOOKS - MAX_CROWD)
  for i = 1, #late, 2 do
    if not mine[late[i]] and not joined[late[i]] then waiting[#waiting + 1] = {tonumber(late[i + 1]), late[i]} end
  end
  table.sort(waiting, before)
end

-- Who leases limits to a partition seldom asks one without jobs, so it is told of the next lane.
if known[7] and (ready[1] or waiting[1] and waiting[1][1] <= horizon) then
  plan('HDEL', vtime, '*idle')
  announcement = 'lease'
end

local function insert(list, score, lane)
  local at = #list + 1
  local entry = {score, lane}
  while at > 1 and before(entry, list[at - 1]) do at = at - 1 end
  table.insert(list, at, entry)
end

-- place holds the new place of each lane: {set, score}, or false for none.
local place = {}

-- owed lists lanes in line whose tenants have a guarantee, by when it lets them go before others; owed_at holds the new
-- moment of each, or false for none. Of lanes that are not in line any more, it may still have some.
local owed, owed_at, turned = {}, {}, {}
local claim, first_owed, serve_in_turn
local guarantees
if usable then guarantees = guaranteed() end -- nil: no tenant has one
if guarantees and not attempt(headgate .. 'owed', function()
  owed = window(read('ZRANGE', headgate .. 'owed', 0, MAX_CROWD, 'WITHSCORES'), MAX_CROWD)
end) then
  guarantees = nil
end
if guarantees then
  -- claim notes when a lane in line goes before others.
  function claim(lane)
    local at = guarantees.due(lane_limits(lane, now), now)
    owed_at[lane] = at < math.huge and at
    return owed_at[lane]
  end

  -- place_in_line returns where a lane that has had no turn stands in line: its virtual start time, and its index in
  -- ready if it is there; nil: it is not in line.
  local function place_in_line(lane)
    for i, entry in ipairs(ready) do
      if entry[2] == lane then return entry[1], i end
    end
    if turned[lane] then return nil end
    local at = place[lane]
    if at == nil then
      local score = read('ZSCORE', headgate .. 'ready', lane)
      if score then return score_read(score) end
    elseif at and at[1] == 'ready' then
      return at[2]
    end
  end

  -- first_owed takes the first lane out of the line that its tenant's guarantee lets go at s, and returns it and its
  -- virtual start time.
  function first_owed(s)
    while owed[1] and owed[1][1] <= s do
      local lane = table.remove(owed, 1)[2]
      local start, i = place_in_line(lane)
      if not start or not attempt('lane ' .. lane, function() claim(lane) end) then
        if not turned[lane] then owed_at[lane] = false end
      elseif owed_at[lane] and owed_at[lane] <= s then
        -- The tenant's lanes have one bucket, and the first of them in line has its turn.
        local tenant, at = tenant_of(lane), nil
        for k, other in ipairs(owed) do
          local earlier, j
          if other[1] <= s and tenant_of(other[2]) == tenant then earlier, j = place_in_line(other[2]) end
          if earlier and earlier < start then start, i, at = earlier, j, k end
        end
        if at then
          local first = table.remove(owed, at)[2]
          insert(owed, owed_at[lane], lane)
          lane = first
        end
        if i then table.remove(ready, i) end
        return lane, start
      elseif owed_at[lane] then
        insert(owed, owed_at[lane], lane)
      end
    end
  end

  -- serve_in_turn takes a lane off the list: its guarantee does not end its own turn.
  function serve_in_turn(lane)
    for i, entry in ipairs(owed) do
      if entry[2] == lane then return table.remove(owed, i) end
    end
  end
end

local function stand(lane, start)
  place[lane] = {'ready', start}
  if start < ready_beyond then insert(ready, start, lane) end
  if guarantees and claim(lane) then insert(owed, owed_at[lane], lane) end
end

local function wait(lane, e)
  place[lane] = {'waiting', e}
  if e < waiting_beyond then insert(waiting, e, lane) end
end

-- A damaged lane gets one turn in a call.
local function set_aside(lane, us) place[lane] = {'waiting', now + (us or RETRY_US)} end

local function make_ready(lane)
  local start
  if attempt('lane ' .. lane, function() start = start_of(lane) end) then stand(lane, start) else set_aside(lane) end
end

-- Lanes that another worker put aside and that this worker can serve. There may be any
-- number of unserved kinds, so it asks for each of its own.
local served, aside = {}, false -- aside: there are more of them
for kind in string.gmatch(ARGV[7], '[^,]+') do
  if handles(kind) then served[#served + 1] = kind end
end
if served[1] and exists(unserved) then
  for i, there in ipairs(read('SMISMEMBER', unserved, unpack(served))) do
    if there == 1 then
      local set = unserved .. ':' .. served[i]
      attempt(set, function()
        local found = pick(set, MAX_CROWD)
        if #found < MAX_CROWD then plan('SREM', unserved, served[i]) else aside = true end
        for _, lane in ipairs(found) do wait(lane, now) end
      end)
    end
  end
end

-- put_back makes a lane wait for its own limits. Lanes that wait for the same moment of
-- one bucket are spread over its interval; otherwise all of them would be looked at for
-- each job that goes. A limit that may admit more before that moment is asked again then.
-- A lane that has just been served (taken > 0) comes after those that wait for the same
-- moment: otherwise the order of names would give one lane of a tenant all slots. The
-- smallest step between such moments is a quarter of a µs, too small to make a slot late.
local crowd = {}
local function put_back(lane, e, binding, taken)
  if binding then
    if binding.till and binding.till > now and binding.till < e then e = binding.till end
    if binding.unit ~= '' or binding.asker then
      attempt('lane ' .. lane, function()
        plan('SADD', metered(binding), lane)
        plan('PEXPIRE', metered(binding), 86400000)
      end)
    end
    if binding.asker then
      attempt('tenant ' .. binding.asker, function() plan('ZADD', binding.askers, int(now), binding.asker) end)
    end
    if taken > 0 then
      e = e + 0.25
    elseif binding.spec and KIND[binding.spec.a] == 'rate' then
      local line = crowd[binding.key]
      if not line or line.e ~= e then
        crowd[binding.key] = {e = e, n = 1}
      else
        e = e + math.min(math.floor(line.n * binding.spec.p / binding.spec.r), tonumber(ARGV[4]))
        line.n = line.n + 1
      end
    end
  end
  wait(lane, e)
end

-- view returns the jobs of a lane that this call has not dealt with, in order. A lane
-- with one priority is read in pieces, a lane with several by priority.
local views = {}
local function view(lane)
  local v = views[lane]
  if not v then
    v = {passed = 0, jobs = {}, at = 1, piece = 4}
    local skips = has_bands() and read('HGET', headgate .. 'skips', lane)
    if skips then v.skips, v.heads, v.taken = tonumber(skips) or 0, {}, {[0] = 0, 0, 0} end
    views[lane] = v
  end
  return v
end

local function head_of(lane, v, band)
  while v.heads[band] == nil do
    local from, to = band == 0 and '-inf' or int(band * BAND), band == 2 and '+inf' or '(' .. int((band + 1) * BAND)
    local found = read('ZRANGEBYSCORE', lane_key(lane), from, to, 'WITHSCORES', 'LIMIT', v.taken[band], 1)
    if found[1] and gone[found[1]] then
      v.taken[band] = v.taken[band] + 1
    else
      v.heads[band] = found[1] and {found[1], tonumber(found[2]), band} or false
    end
  end
  return v.heads[band]
end

-- next_job returns the job whose turn it is: the first of the highest priority. At least
-- one of ten jobs of a lane is the one of lower priority that waited longest, so that
-- none waits forever. It also returns 'first' or 'below' if jobs of several priorities
-- wait.
local MAX_SKIPS = 9
local function next_job(lane)
  local v = view(lane)
  if not v.skips then
    repeat
      if v.at > #v.jobs then
        v.jobs, v.at = read('ZRANGE', lane_key(lane), v.passed, v.passed + v.piece - 1, 'WITHSCORES'), 1
        v.piece = math.min(4 * v.piece, MAX_RELEASED)
      end
      local id, position = v.jobs[v.at], tonumber(v.jobs[v.at + 1])
      v.head = nil
      if id and gone[id] then
        v.at, v.passed = v.at + 2, v.passed + 1
      else
        return id, position
      end
    until false
  end
  local first, below
  for band = 0, 2 do
    local head = head_of(lane, v, band)
    if head and not first then
      first = head
    elseif head and (not below or (below[3] == 1 and head[2] - 2 * BAND < below[2] - BAND)) then
      below = head
    end
  end
  if not first then return nil end
  v.head = first
  if not below then return first[1], first[2] end
  if v.skips < MAX_SKIPS then return first[1], first[2], 'first' end
  v.head = below
  return below[1], below[2], 'below'
end

-- pass moves on to the next job of a lane.
local function pass(lane)
  local v = view(lane)
  if v.skips then
    local band = v.head[3]
    v.taken[band], v.heads[band] = v.taken[band] + 1, nil
  else
    v.at, v.passed = v.at + 2, v.passed + 1
  end
end

local function went(lane, order)
  local v = view(lane)
  if order == 'first' then v.skips, v.skipped = v.skips + 1, true end
  if order == 'below' then v.skips, v.skipped = 0, true end
end

-- release hands a job over with the slot e to c, and records which limit held it until
-- then (record.lua).
local function release(turn, job, e, c, tries, marks, held_by)
  local lane = turn.lane
  local probe = false
  if tries then probe = attempt('pauses', function() hold_try(tries, job.id, lease, now) end) end
  lane_drop(lane, job.id)
  went(lane, job.order)
  local fields = slot_fields({'', '', 'hg_released', released_write(now, held_by and held_by.name or '')}, job, e, c, marks)
  job.e, job.c = e, c
  hand(job, hand_answer(job), e, c, probe, now, fields)
  released, turn.taken = released + 1, turn.taken + 1
  pass(lane)
  return true
end

-- elsewhere returns whether a job is where its state says: asynq's tools may have moved
-- it while its lane still lists it.
local SETS = {scheduled = true, retry = true, archived = true, completed = true}
local function elsewhere(id, state)
  if SETS[state] then
    return read('ZSCORE', asynq .. state, id) or (state == 'archived' and read('ZSCORE', headgate .. 'archive', id))
  elseif state == 'pending' or state == 'active' then
    return read('LPOS', asynq .. state, id)
  end
end

-- look_at reads the job whose turn it is; nil if it is gone or elsewhere. look returns
-- the first job of the lane that it can read; nil if there is none, and 'damaged' if some
-- are damaged, or 'ghosts' if too many were gone. A damaged job keeps its place, and the
-- next one has its turn.
local function look_at(id, position, order)
  local job = hand_look(id)
  if not job then return nil end
  if job.state ~= 'aggregating' then
    if elsewhere(id, job.state) then return nil end
    error('its state is ' .. string.format('%q', job.state), 0)
  end
  if not (position >= 0 and position < 1e16) then error('its position in the lane is out of range', 0) end
  job.kept_e, job.kept_c = job.e, job.c
  if job.c > 0 then job.kept_position = job.position end
  job.position, job.order, job.suspect = position, order, job.crashes >= 2
  return job
end

local function look(lane)
  local tries, damaged = 0, false
  while true do
    local id, position, order = next_job(lane)
    if not id then return nil, damaged and 'damaged' end
    local understood, job = attempt_job(id, look_at, position, order)
    if job then return job end
    pass(lane)
    tries = tries + 1
    if understood then
      lane_drop(lane, id)
      backlog_add(tenant_of(lane), -1)
    else
      damaged = true
    end
    if tries >= MAX_GHOSTS then return nil, damaged and 'damaged' or 'ghosts' end
  end
end

-- A lane that was woken for a permit and does not take it wakes another one. limits are
-- nil if the lane holds no readable job.
local function pass_on(lane, limits)
  if not limits and not attempt('lane ' .. lane, function() limits = lane_limits(lane, now) end) then return end
  for _, entry in ipairs(limits.permits) do
    attempt('lane of ' .. limits.tenant, function()
      if not permit_left(entry, now) then return end
      for _, other in ipairs(pick(entry.blocked, 1)) do wait(other, now) end
    end)
  end
end

-- holds_due is when the first of the pauses and kept limits that were met ends.
local holds_due = math.huge

-- has_slot reports whether a job has a slot that its worker did not use, and that is not over. One that is far ahead is
-- from before the clock was set back.
local function has_slot(job) return job.kept_c > now and job.kept_e <= horizon + horizon - now end

-- weigh computes what holds a job back: its pauses, concurrency limits and own limits.
local function weigh(lane, job)
  local limits = job_limits(lane, job.msg, now)
  slot_ask(job, limits, limits.own, pausing, now)
  if has_slot(job) then job.own, job.binding = job.kept_e, nil end -- its limits count it already
  earliest_all(limits.shared, now, now, job.costs) -- may raise: a tenant's values apply to these, too
end

-- next_weighed returns what look does, with what holds the job back.
local function next_weighed(lane)
  local job, none = look(lane)
  if job then weigh(lane, job) end
  return job, none
end

-- The rows of the decision table above. Each returns whether the lane continues with its
-- next job.
local function no_job(turn, none)
  local lane = turn.lane
  if none == 'ghosts' then
    wait(lane, now)
    return false
  end
  if none == 'damaged' then
    set_aside(lane, RETRY_US / 5) -- others may come after the damaged ones
  else
    attempt('lane ' .. lane, function()
      lane_close(lane, now)
      place[lane] = nil
      -- asynq's tools emptied it, and the counts of its tenant still have its jobs. The sweep
      -- counts the lanes that are listed.
      if turn.taken == 0 then plan('SADD', asynq .. 'groups', lane) end
    end)
  end
  if turn.taken == 0 then pass_on(lane, turn.limits) end
end

local function unserved_here(turn, job)
  local kind = job.limits.kind
  local noted = attempt('lane ' .. turn.lane, function()
    plan('SADD', unserved, kind)
    plan('SADD', unserved .. ':' .. kind, turn.lane)
  end)
  if not noted then set_aside(turn.lane) end
  if turn.taken == 0 then pass_on(turn.lane, job.limits) end
end

local function paused(turn, job)
  -- It has no second turn in this call: a lane whose pause ends within the horizon would
  -- keep all others from their turn.
  place[turn.lane] = {'waiting', job.again}
  holds_due = math.min(holds_due, job.again)
  if turn.taken == 0 then pass_on(turn.lane, job.limits) end
end

local function no_permit(turn, job)
  local blocked = job.blocked
  local till = blocked.till
  if blocked.lapses and not (till and till > now and till < blocked.lapses) then till = blocked.lapses end
  if not attempt('lane ' .. turn.lane, function() plan('SADD', blocked.blocked, turn.lane) end) then
    set_aside(turn.lane)
  elseif till and till > now then
    wait(turn.lane, till) -- the limit may admit more before a permit is freed
  end
  if turn.taken == 0 then pass_on(turn.lane, job.limits) end
end

local function later(turn, job) put_back(turn.lane, job.own, job.binding, turn.taken) end

-- stop ends the round: nothing else may go before due_us. A lane that released no job
-- keeps its place in line.
local function stop(turn, job, due_us)
  next_due, turn.stops, turn.stays = due_us, true, turn.taken == 0
  if not turn.stays then later(turn, job) end
end

local function no_room_left(turn, job) stop(turn, job, job.own) end

local function not_its_turn(turn, job)
  later(turn, job)
  if turn.taken == 0 then pass_on(turn.lane, job.limits) end
end

-- again_at returns when to look again at what a shared limit admits at `at`. Something may be leased at any moment, and
-- the announcement of that may get lost.
local function again_at(at, limit)
  local leased = limit and limit.spec.leased and at <= now + limit.spec.ahead + 1 -- nothing was
  return leased and math.min(at, horizon + 1) or at
end

-- Shared capacity is kept for the lane whose turn it is. Otherwise a job of high cost would wait forever behind small
-- ones.
local function too_far(turn, job) stop(turn, job, again_at(job.all, job.held_by or turn.shared_by)) end

-- unit_used_up is too_far for what not all jobs take. The first lane that the limit holds keeps its place,
-- and what is left of the limit is kept for it, but for that of a window, which ends before. The others that
-- it holds wait until then, so that they do not hide those behind them that take nothing. For less than
-- KEEP_US, looking at them costs more than it gives.
local KEEP_US = 5000000
local function unit_used_up(turn, job)
  local limit = job.held_by.bucket
  if turn.taken > 0 then
    later(turn, job)
  elseif limit.holds then
    put_back(turn.lane, job.all, job.held_by, 0)
  else
    limit.holds, turn.stays = true, true
    if limit.kind ~= 'window' and limit.kind ~= 'quota' then limit.kept_till = job.all end
    holds_due = math.min(holds_due, job.all)
  end
  if turn.taken == 0 then pass_on(turn.lane, job.limits) end
end

local function go_with_kept_slot(turn, job)
  -- Its permits are taken already: it returns from a worker that stopped.
  job.position, job.permits = job.kept_position or job.position, job.permits or take_permits(job.limits, job.id, now)
  return release(turn, job, job.kept_e, job.kept_c, job.due)
end

-- It takes no permit, so no slot is stored. The worker gets one that is already over: if the clock is set back and the
-- deadline does not come, it asks for another one.
local function go_expired(turn, job)
  release(turn, job, 0, 0)
  local reply = handed[#handed]
  if reply[3] == 'slot' then reply[3], reply[4], reply[5] = 'go', math.max(job.deadline, now), 1 end
  return true
end

local function go_without_slot(turn, job) return release(turn, job, 0, 0, job.due) end

local function go_with_slot(turn, job)
  local t = job.all
  -- Lanes that wake together are spread out. Otherwise their calls would leave at one
  -- instant each time, and delay each other.
  local c, marks = slot_take(job, t, now + pickup + released * 250, now)
  if guarantees then guarantees.count(job.limits, job.costs, c, now) end
  if t > now + pickup then ahead = ahead + 1 end
  local held_by = job.held_by or (turn.s > job.own and turn.shared_by) or job.binding
  release(turn, job, t, c, job.due, marks, held_by)
  local part = part_of(job.costs)
  parts[#parts + 1] = part
  turn.spent, turn.last = turn.spent + part, part
  turn.s, turn.shared_by = earliest_all(shared, now, now, ONE)
  return true
end

-- had_share reports whether it is another lane's turn: one that is behind it in line, or before all by its guarantee.
local function had_share(turn, limits)
  if turn.owed then return guarantees.due(limits, now) > turn.s end
  return turn.spent / limits.w + turn.start > turn.share or (owed[1] ~= nil and owed[1][1] <= turn.s)
end

-- row returns the first row of the decision table that fits a job.
local function row(turn, job)
  local limits, own = job.limits, job.own
  if not handles(limits.kind) then return unserved_here end
  if job.paused > now then return paused end
  if job.blocked then return no_permit end
  if no_room() then return no_room_left end
  if has_slot(job) then return job.kept_e <= horizon and go_with_kept_slot or later end
  if turn.taken > 0 and had_share(turn, limits) then return not_its_turn end
  if own > (turn.share < math.huge and turn.s + patience or turn.due_us) then return not_its_turn end
  job.all, job.held_by = earliest_all(limits.all, now, math.max(turn.s, own), job.costs)
  local t = job.all
  if job.deadline > 0 and job.deadline <= t and job.deadline <= horizon then return go_expired end
  if t <= horizon and job.suspect then return go_without_slot end
  if own <= horizon and t > math.max(horizon, now + KEEP_US) and job.held_by and job.held_by.unit ~= '' then return unit_used_up end
  if t > horizon or (t > now + pickup and ahead >= max_ahead) then return too_far end
  if turn.taken > 0 and t > turn.due_us then return later end
  return go_with_slot
end

-- run gives a lane its turn, and returns whether the round ends with it. The turn lasts
-- until another lane is due (due_us), or until the lane's virtual time passes that of the
-- next ready lane (share); or, of a lane that goes before others, as long as its tenant's guarantee admits (share is
-- BEFORE_ALL). s is when the shared limits admit a job, and shared_by the limit that determines it.
local BEFORE_ALL = -math.huge
local function run(lane, start, s, shared_by, due_us, share)
  local turn = {
    lane = lane, start = start, s = s, shared_by = shared_by, due_us = due_us, share = share,
    owed = share == BEFORE_ALL,
    taken = 0, spent = 0, last = 0, -- released jobs, the sum of their parts of the queue, and the last part
    stops = false, stays = false, -- the round ends; the lane keeps its place in line
  }
  local expected, goes_on = typical, true
  place[lane], turned[lane] = false, true
  view(lane) -- reads a key of the whole queue, whose damage is not the lane's
  while goes_on do
    local ok, job, none = pcall(next_weighed, lane)
    if not ok then
      give_up('lane ' .. lane, job, #plans)
      set_aside(lane)
      break
    end
    if not job then
      no_job(turn, none)
      break
    end
    turn.limits = job.limits
    goes_on = row(turn, job)(turn, job)
  end
  local tenant = tenant_of(lane)
  if turn.stays then
    place[lane] = {'ready', start}
    if guarantees then claim(lane) end
  elseif turn.limits then
    local w = turn.limits.w
    local before = finish_of(tenant) - expected / w
    finish[tenant] = before + turn.spent / w
    -- What is guaranteed to it moves it on, so that it does not get its share by weight besides; but not so far ahead
    -- that it has to wait when the others are gone.
    if turn.owed then
      local ahead = 2 * typical + part_of(guarantees.at_once(turn.limits, now))
      finish[tenant] = math.max(before, math.min(finish[tenant], virtual + ahead / w))
      turn.spent = 0
    end
  end
  if leased and turn.spent > 0 and start < virtual then firsts = firsts + math.min(turn.spent, (virtual - start) * turn.limits.w) end
  -- The queue's virtual time is the start of the job that went last.
  if turn.spent > 0 then virtual = math.max(virtual, start + (turn.spent - turn.last) / turn.limits.w) end
  backlog_add(tenant, -turn.taken)
  return turn.stops
end

local looks, over, more = 0, not usable, false
while not over do
  looks = looks + 1
  local s, shared_by = earliest_all(shared, now, now, ONE)
  local function first_due() return math.floor(waiting[1] and waiting[1][1] or waiting_beyond) end
  local first = first_due()
  if not ready[1] and first > horizon then
    if first < math.huge then next_due = first end
    break
  end
  -- No lane is ready: take the first that will be.
  if not ready[1] then s = math.max(s, first) end
  local second = math.floor(waiting[2] and waiting[2][1] or waiting_beyond)
  local lane, start, share = nil, nil, math.huge
  if ready[1] or second <= s then
    while waiting[1] and first_due() <= math.min(s, horizon) do make_ready(table.remove(waiting, 1)[2]) end
    second = first_due()
    if not ready[1] then
      more = ready_beyond < math.huge or second <= now
      if second > now and second < math.huge then next_due = second end
      break
    end
    if s <= horizon and not no_room() then
      if guarantees then lane, start = first_owed(s) end
      if lane then
        share, second = BEFORE_ALL, horizon
      else
        start, lane = unpack(table.remove(ready, 1))
        share = ready[1] and ready[1][1] or ready_beyond
        if owed[1] then serve_in_turn(lane) end
      end
    end
  elseif s <= horizon and not no_room() then
    -- It is the only one, and does not have to become ready first.
    lane = table.remove(waiting, 1)[2]
    if not attempt('lane ' .. lane, function() start = start_of(lane) end) then
      set_aside(lane)
      lane = nil
    end
  end
  if s > horizon or no_room() then
    next_due = again_at(s, shared_by)
    break
  end
  if lane then over = run(lane, start, s, shared_by, math.min(second, horizon), share) end
  if looks >= MAX_LOOKS then more = true break end
end

-- All places change in one command for each set and direction.
local moves = {
  ZREM = {waiting = {}, ready = {}},
  ZADD = {waiting = {}, ready = {}},
}
for lane, at in pairs(place) do
  for _, set in ipairs({'waiting', 'ready'}) do
    if at and at[1] == set then
      local list = moves.ZADD[set]
      list[#list + 1], list[#list + 2] = score_write(at[2]), lane
    elseif set == 'waiting' or in_line[1] then
      local list = moves.ZREM[set]
      list[#list + 1] = lane
    end
  end
end
for command, sets in pairs(moves) do
  for set, words in pairs(sets) do
    if words[1] then plan(command, headgate .. set, unpack(words)) end
  end
end
if guarantees then
  local added, removed = {}, {}
  for lane, at in pairs(place) do
    if not at or at[1] ~= 'ready' then owed_at[lane] = false end
  end
  for lane, at in pairs(owed_at) do
    if at then added[#added + 1], added[#added + 2] = int(at), lane else removed[#removed + 1] = lane end
  end
  if added[1] then
    plan('ZADD', headgate .. 'owed', unpack(added))
    plan('PEXPIRE', headgate .. 'owed', 86400000)
  end
  if removed[1] then plan('ZREM', headgate .. 'owed', unpack(removed)) end
end
for lane, v in pairs(views) do
  if v.skipped and place[lane] ~= nil then plan('HSET', headgate .. 'skips', lane, int(v.skips)) end
end

local keep, drop = {}, {}
if reset then
  plan('DEL', vtime)
  if known[7] and not announcement then keep[1], keep[2] = '*idle', known[7] end
end
for tenant, at in pairs(finish) do
  local weight = 1
  attempt('tenant ' .. tenant, function() weight = tenant_config(tenant, now).w end)
  if at > virtual - 2 * typical / weight then
    keep[#keep + 1], keep[#keep + 2] = tenant, score_write(at)
  else
    drop[#drop + 1] = tenant
  end
end
if keep[1] or drop[1] or reset or stepped or math.abs(now - looked_at) > 1000000 then
  for i, value in ipairs({'*', score_write(virtual), '*unit', unit, '*clock', int(now)}) do table.insert(keep, i, value) end
  while #parts > 7 do table.remove(parts, 1) end
  local usual = median()
  if usual and usual > 0 and (usual > 2 * typical or usual < typical / 2) then typical = usual end
  keep[#keep + 1], keep[#keep + 2] = '*parts', parts_write(parts)
  keep[#keep + 1], keep[#keep + 2] = '*typical', score_write(typical)
  if leased then keep[#keep + 1], keep[#keep + 2] = '*firsts', score_write(firsts) end
  plan('HSET', vtime, unpack(keep))
  if drop[1] then plan('HDEL', vtime, unpack(drop)) end
  -- A credit never lasts longer than a day.
  if math.abs(now - looked_at) > 1000000 then plan('PEXPIRE', vtime, 86400000) end
end

local jobs, waits, enqueued, pauses = hand_over(now)
local again, full = -1, released >= tonumber(ARGV[2])
if not usable then
  again = RETRY_US / 5
elseif more or aside or forwarded > 0 or next(gone) or (no_room() and not full) then
  again = 0 -- there is more to do than fits in one call
else
  if next_due < 0 then next_due = math.huge end
  next_due = math.min(next_due, holds_due, sets_due)
  if next_due < math.huge then again = math.max(0, math.min(next_due - now, 86400000000)) end
end
return {
  int(again), waits, forwarded, full and 1 or 0, enqueued, pauses, int(now),
  stepped and 1 or 0, 1, lead(#handed > tonumber(ARGV[12])), jobs, int(born),
}
