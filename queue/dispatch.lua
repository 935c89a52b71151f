-- dispatch.lua: bring back what is due, and release what may go soon.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   max: jobs the caller can take (its free capacity)
-- ARGV[3]   max_ahead: of these, how many may be released before their slot
-- ARGV[4]   horizon_us: how far ahead of now a slot may lie
-- ARGV[5]   pickup_us: how long a worker usually takes to pick a job up
-- ARGV[6]   calendars as JSON {id: [window starts]}, '' for none
-- Returns   {released, again_us, backlog, forwarded, full 1|0, pending, enqueued, pauses}; again_us:
--           from now, when something may go next; -1: not before somebody acts.
--           full: the caller has no room left. pauses: how often they were changed.
-- At most 100 jobs are forwarded from each set, 100 expire and 16 are released in a call,
-- which so keeps Redis busy for some 2 ms at most.
local now = clock()
local horizon, pickup = now + tonumber(ARGV[4]), tonumber(ARGV[5])
set_calendars(ARGV[6])

-- 1. Forward: scheduled, retried and parked jobs whose time has come.
local forwarded = 0
for _, set in ipairs({'scheduled', 'retry'}) do
  local ids = redis.call('ZRANGEBYSCORE', asynq .. set, '-inf', int(math.floor(now / 1000000)), 'LIMIT', 0, 100)
  for i, id in ipairs(ids) do
    redis.call('ZREM', asynq .. set, id)
    local task = redis.call('HMGET', task_key(id), 'state', 'group', 'hg_slot', 'hg_done')
    if task[1] and task[2] and task[2] ~= '' and not task[4] then
      local _, latest, position = slot_read(task[3])
      -- Its old place, or behind all that waits. A slot that it still holds is
      -- used as soon as the lane is looked at.
      to_lane(task[2], id, position or BAND + now + i, now, latest > now)
    elseif task[1] then
      redis.call('HSET', task_key(id), 'state', 'pending', 'pending_since', int(now * 1000))
      pend(id)
    end
  end
  forwarded = forwarded + #ids
end

-- 2. Expire: what nobody wants any more is put away by a worker, and no limit,
-- pause or window holds it up.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', headgate .. 'deadlines', '-inf', int(now), 'LIMIT', 0, 100)) do
  redis.call('ZREM', headgate .. 'deadlines', id)
  local task = redis.call('HMGET', task_key(id), 'state', 'group', 'hg_slot', 'hg_permits')
  local waits = task[1] == 'scheduled' or task[1] == 'retry'
  if task[1] == 'aggregating' then
    lane_drop(task[2], id)
    lane_close(task[2], now)
    backlog_add(tenant_of(task[2]), -1)
  elseif waits then
    redis.call('ZREM', asynq .. task[1], id)
  end
  if waits or task[1] == 'aggregating' then
    local _, _, position = slot_read(task[3])
    redis.call('HSET', task_key(id), 'state', 'pending', 'pending_since', int(now * 1000),
      'hg_slot', slot_write(now, 0, position or BAND + now))
    pend(id)
  elseif task[1] == 'pending' or task[1] == 'active' then
    -- Its worker looks at the deadline; should the job come back, it is looked at here.
    redis.call('ZADD', headgate .. 'deadlines', int(now + 5000000), id)
  end
end

-- 3. Release.
local MOST, MOST_LOOKS = 16, 32
local room = tonumber(ARGV[2]) - redis.call('LLEN', asynq .. 'pending')
local max = math.min(room, MOST)
local max_ahead = math.min(max, tonumber(ARGV[3]))
local released, ahead, next_due = 0, 0, -1
local pausing = redis.call('EXISTS', headgate .. 'pauses') == 1
local shared = shared_limits(now)

-- A lane whose turn it is may be later than the shared limits by a part of
-- their interval too small to matter, such as the rounding of two equal rates;
-- else it would lose its turn to it each time.
local patience = 1
for _, entry in ipairs(shared) do
  if KIND[entry.spec.a] == 'rate' then patience = math.max(patience, math.ceil(entry.spec.p / entry.spec.r / 256)) end
end

-- Start-time fair queueing: every lane that is ready stands at a virtual start
-- time; the least goes first; a job moves its tenant on by cost / weight. A
-- tenant that was away starts two jobs before the queue's time: absence earns no
-- more credit than that, and one that its own limit holds for a moment when its
-- turn comes does not lose the turn.
local vtime = headgate .. 'vtime'
local virtual, typical = unpack(redis.call('HMGET', vtime, '*', '~'))
virtual, typical = tonumber(virtual or 0), tonumber(typical or 1)
local finish = {}

-- A job's part of the queue is its cost. Where shared limits count in other
-- units, too, it is the time that it takes of the limit that it takes most of; the
-- first such job says how large a typical one is.
local several = false
for _, entry in ipairs(shared) do several = several or entry.unit ~= '' end
local function part_of(costs)
  if not several then return costs[''] end
  local most = 0
  for _, entry in ipairs(shared) do
    local spec, n = entry.spec, share_of(entry, costs)
    most = math.max(most, KIND[spec.a] == 'rate' and n * spec.p / spec.r or n * 1000000 / spec.b)
  end
  if typical == 1 and most > 1 then
    typical = most
    redis.call('HSET', vtime, '~', string.format('%.17g', typical))
  end
  return most
end

local function start_of(lane)
  local limits = lane_limits(lane, now)
  local tenant = limits.tenant
  local start = math.max(virtual - 2 * typical / limits.w, finish[tenant] or tonumber(redis.call('HGET', vtime, tenant) or 0))
  finish[tenant] = start + typical / limits.w -- as if its next job were like the others; run corrects it
  return start
end

local function stand(lane, start) redis.call('ZADD', headgate .. 'ready', string.format('%.17g', start), lane) end

local function make_ready(lane)
  redis.call('ZREM', headgate .. 'waiting', lane)
  stand(lane, start_of(lane))
end

local function make_due_ready(s)
  local due = redis.call('ZRANGEBYSCORE', headgate .. 'waiting', '-inf', int(s), 'LIMIT', 0, 100)
  for _, lane in ipairs(due) do make_ready(lane) end
end

-- put_back lets a lane wait for its own limits. Lanes that wait for one moment
-- of one bucket are spread over its interval, or all were looked at for each
-- job that goes.
local crowd = {}
local stands = true -- the lane that runs stands in ready
local function put_back(lane, e, binding)
  if binding and binding.unit ~= '' then redis.call('SADD', metered(binding), lane) end
  if binding and binding.spec and KIND[binding.spec.a] == 'rate' then
    local line = crowd[binding.key]
    if not line or line.e ~= e then
      crowd[binding.key] = {e = e, n = 1}
    else
      e = e + math.min(math.floor(line.n * binding.spec.p / binding.spec.r), tonumber(ARGV[4]))
      line.n = line.n + 1
    end
  end
  if stands then redis.call('ZREM', headgate .. 'ready', lane) end
  redis.call('ZADD', headgate .. 'waiting', int(e), lane)
end

-- release hands a job to asynq's workers with its slot, and notes which limit held
-- it until then (record.lua).
local moment = int(now) .. ' '
local function release(lane, id, position, turn, e, c, permits, marks, held_by)
  lane_drop(lane, id)
  lane_went(lane, turn)
  local note = moment
  if held_by then note = moment .. held_by.name end
  local fields = {'state', 'pending', 'pending_since', int(now * 1000), 'hg_slot', slot_write(e, c, position), 'hg_released', note}
  if permits ~= '' then fields[9], fields[10] = 'hg_permits', permits end
  if marks and marks ~= '' then fields[#fields + 1], fields[#fields + 2] = 'hg_marks', marks end
  redis.call('HSET', task_key(id), unpack(fields))
  pend(id)
  released = released + 1
end

-- run releases jobs of one lane while it is the lane's turn: until another lane
-- is due (due_us), or its virtual time passes that of the next in line (share).
-- It returns true when nothing else may go before next_due.
local function run(lane, start, s, shared_by, due_us, share)
  local limits = lane_limits(lane, now)
  local tenant = limits.tenant
  local paused = pausing and paused_until(tenant, limits.kind) or 0
  local taken, spent, leaves, stop, expected = 0, 0, true, false, typical
  while true do
    local id, position, turn = lane_next(lane)
    if not id then
      lane_close(lane, now)
      break
    end
    local task = redis.call('HMGET', task_key(id), 'state', 'hg_cost', 'hg_deadline', 'hg_slot', 'hg_permits', 'hg_costs')
    local costs, deadline = costs_read(task[2], task[6]), tonumber(task[3] or 0)
    local kept_e, kept_c, kept_position = slot_read(task[4])
    if task[1] ~= 'aggregating' then
      lane_drop(lane, id) -- a ghost: asynq's tools moved or deleted the task
      backlog_add(tenant, -1)
    elseif paused > now then
      put_back(lane, paused)
      break
    else
      local blocked = not task[5] and blocked_by(limits, now)
      if blocked then
        redis.call('SADD', blocked.blocked, lane)
        if stands then redis.call('ZREM', headgate .. 'ready', lane) end
        break
      end
      local own, binding = earliest_all(limits.own, now, now, costs)
      local kept = kept_c > now and kept_e <= horizon
      if released >= max then
        next_due = own
        stop, leaves = true, taken > 0
        if leaves then put_back(lane, own, binding) end
        break
      elseif kept then
        -- It returns with a slot that is paid for, from a worker that stopped.
        release(lane, id, kept_position or position, turn, kept_e, kept_c, task[5] or '')
        taken = taken + 1
      elseif (taken > 0 and spent / limits.w + start > share) or own > (share < math.huge and s + patience or due_us) then
        put_back(lane, own, binding)
        break
      else
        local t, held_by = earliest_all(limits.all, now, math.max(s, own), costs)
        if not held_by then
          held_by = binding
          if s > own and shared_by then held_by = shared_by end
        end
        if deadline > 0 and deadline <= t and deadline <= horizon then
          -- It cannot go in time: the worker archives it, and no limit is touched.
          release(lane, id, position, turn, math.max(deadline, now), 0, task[5] or '')
          taken = taken + 1
        elseif t > horizon or (t > now + pickup and ahead >= max_ahead) then
          -- Shared capacity is kept for the lane whose turn it is, or a job of
          -- great cost would wait for ever behind small ones.
          if own <= horizon then next_due, stop = t, true end
          leaves = not stop or taken > 0
          if leaves then put_back(lane, own, binding) end
          break
        elseif taken > 0 and t > due_us then
          put_back(lane, own, binding)
          break
        else
          local c, marks = 0, '' -- no limit, no end
          if #limits.all > 0 then
            -- Lanes that wake together are set apart, or their calls would leave
            -- at one instant, again and again, and be late behind each other.
            c = math.max(t, now + pickup + released * 250)
            marks = commit_all(limits.all, now, c, costs)
          end
          if t > now + pickup then ahead = ahead + 1 end
          release(lane, id, position, turn, t, c, task[5] or take_permits(limits, id, now), marks, held_by)
          local part = part_of(costs)
          taken, spent = taken + 1, spent + part
          s, shared_by = earliest_all(shared, now, now, ONE)
        end
      end
    end
  end
  if leaves then
    finish[tenant] = finish[tenant] or tonumber(redis.call('HGET', vtime, tenant) or 0)
    finish[tenant] = finish[tenant] + (spent - expected) / limits.w
  elseif not stands then
    stand(lane, start)
  end
  if spent > 0 then virtual = math.max(virtual, start) end
  backlog_add(tenant, -taken)
  return stop
end

local looks, over = 0, false
repeat
  looks = looks + 1
  local s, shared_by = earliest_all(shared, now, now, ONE)
  local ready = redis.call('ZRANGE', headgate .. 'ready', 0, 1, 'WITHSCORES')
  local waiting = redis.call('ZRANGE', headgate .. 'waiting', 0, 1, 'WITHSCORES')
  local first, second = tonumber(waiting[2] or math.huge), tonumber(waiting[4] or math.huge)
  if not ready[1] and first > horizon then
    if waiting[1] then next_due = first end
    break
  end
  -- Nobody is ready: on to the first lane that will be.
  if not ready[1] then s = math.max(s, first) end
  local lane, start, share = waiting[1], nil, math.huge
  stands = ready[1] or second <= s -- else it is alone, and need not stand in line
  if stands then
    if first <= math.min(s, horizon) then
      make_due_ready(math.min(s, horizon))
      ready = redis.call('ZRANGE', headgate .. 'ready', 0, 1, 'WITHSCORES')
      first = tonumber(redis.call('ZRANGE', headgate .. 'waiting', 0, 0, 'WITHSCORES')[2] or math.huge)
    end
    lane, start, second = ready[1], tonumber(ready[2]), first
    if ready[4] then share = tonumber(ready[4]) end
  end
  if s > horizon or released >= max then
    next_due = s
    break
  end
  if not stands then
    redis.call('ZREM', headgate .. 'waiting', lane)
    start = start_of(lane)
  end
  over = run(lane, start, s, shared_by, math.min(second, horizon), share)
until over or looks >= MOST_LOOKS

save_buckets(now)
local keep, drop = {'*', string.format('%.17g', virtual)}, {}
for tenant, at in pairs(finish) do
  if at > virtual - 2 * typical / tenant_config(tenant, now).w then
    keep[#keep + 1], keep[#keep + 2] = tenant, string.format('%.17g', at)
  else
    drop[#drop + 1] = tenant
  end
end
redis.call('HSET', vtime, unpack(keep))
if drop[1] then redis.call('HDEL', vtime, unpack(drop)) end

local again = -1
if looks >= MOST_LOOKS or forwarded >= 100 or (released == max and max < room) then
  again = 0 -- there is more to do than one call may
elseif next_due >= 0 then
  again = math.max(0, next_due - now)
end
local totals = redis.call('HMGET', headgate .. 'totals', 'enqueued', 'pauses')
return {
  released, int(again), tonumber(redis.call('HGET', headgate .. 'backlog', '*') or 0), forwarded,
  released >= room and 1 or 0, redis.call('LLEN', asynq .. 'pending'),
  tonumber(totals[1] or 0), tonumber(totals[2] or 0),
}
