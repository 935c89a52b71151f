-- sweep.lua: look at lanes again, a slice at a time.
--
-- A lane waits for the moment that its limits named when they were last asked. That
-- moment is wrong after limits were changed, a pause was ended or the clock was set back, or if
-- a worker that stopped gave a job back with a slot that nobody used;
-- and other producers add lanes that the dispatcher does not know. Each lane of the slice
-- that is not ready is asked again and put where it belongs. The sweep of a worker also
-- corrects the counts of waiting jobs and the permits of jobs that asynq's tools took
-- away, and deletes pauses that are over and virtual times that change nothing.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   cursor: where the last slice ended, '0' to begin
-- ARGV[3]   calendars as JSON, '' for none
-- ARGV[4]   the tenant whose lanes are asked, escaped; '' for all
-- ARGV[5]   '1': also correct counts and permits, and delete pauses and virtual times
-- Returns   {cursor, moved}
-- Bound: a slice has some 100 lanes of up to 16 limits; for one tenant up to 2,000 names, of which
-- only its lanes are asked, some 300 at most. For counts it asks some 6,000 lanes for their length,
-- and it looks at some 100 virtual times.
-- Full memory: it runs (allow-oom), so that lanes wake and drain. A lane is in one of the sets,
-- whichever it is, and the names of kinds are at most some 1,000.
local now = clock()
without_queue = {'0', 0}
if not attempt('limits', function() set_calendars(ARGV[3]) end) then return {'0', 0} end
local tenant_wanted, mends = ARGV[4], ARGV[5] == '1'
local SOON_US = 1000000
local moved = 0

-- ask returns when the first job of a lane may go, the limit that blocks it, and its
-- limits.
local function ask(lane, id)
  local task = read('HMGET', task_key(id), 'hg_cost', 'hg_costs', 'hg_permits', 'msg', 'hg_slot')
  local job, limits = {id = id, costs = costs_read(task[1], task[2]), permits = task[3]}, job_limits(lane, task[4] or '', now)
  local _
  _, job.kept_c, job.kept_position, job.back = slot_read(task[5])
  slot_ask(job, limits, limits.own, true, now)
  local e, binding = job.again < job.paused and job.again or job.own, job.binding
  if binding and binding.till and binding.till > now then e = math.min(e, binding.till) end
  return e, job.blocked, limits
end

-- look returns what ask says of a lane that may have to move, and when it is due now.
local function look(lane)
  local id = read('ZRANGE', lane_key(lane), 0, 0)[1]
  if not id then return lane_close(lane, now) end
  if read('ZSCORE', headgate .. 'ready', lane) then
    -- Its tenant's guarantee may be new.
    if config().guarantees and tenant_config(tenant_of(lane), now).part then
      plan('ZADD', headgate .. 'owed', 'NX', int(now), lane)
      plan('PEXPIRE', headgate .. 'owed', 86400000)
    end
    return
  end
  local due = tonumber(read('ZSCORE', headgate .. 'waiting', lane))
  if due and due <= now + SOON_US then return end
  return due, ask(lane, id)
end

local function put(lane, due, e, blocked, limits)
  if not due and read('SISMEMBER', headgate .. 'unserved:' .. limits.kind, lane) == 1 then return end
  if blocked then
    if read('SISMEMBER', blocked.blocked, lane) == 0 then plan('SADD', blocked.blocked, lane) end
    -- A limit that may admit more before a permit is freed is asked again then.
    if due and not (blocked.till and blocked.till > now or bucket(blocked, now).lapses) then plan('ZREM', headgate .. 'waiting', lane) end
    return
  end
  if due and due <= e then return end
  for _, entry in ipairs(limits.permits) do plan('SREM', entry.blocked, lane) end
  plan('ZADD', headgate .. 'waiting', int(e), lane)
  moved = moved + 1
end

local function mend(lane)
  for _, entry in ipairs(lane_limits(lane, now).permits) do
    for _, id in ipairs(read('ZRANDMEMBER', entry.key, 20)) do
      local state = is_direct(id) and 'active' or read('HGET', task_key(id), 'state')
      if state ~= 'pending' and state ~= 'active' and state ~= 'retry' then free_permits(id, permits_write({entry.key}), now) end
    end
  end
end

-- The count of a tenant is the sum of its lanes, if these differ only by kind and
-- endpoint. So all kinds have to be known, including the new ones of the whole slice,
-- before a tenant is summed: '*' is among the kinds until all lanes were looked at. A
-- kind that is new since then, and that the limits do not list, is not counted until
-- one of its lanes has been in a slice. Of
-- more than MAX_KINDS all are forgotten and learned again, and no tenant is summed
-- meanwhile. The same happens while lanes have other attributes, as after a limit with one was
-- removed: such a lane is not part of the sum. If a job in flight returns to one that was empty, it is not
-- counted until the lane has been in a slice.
-- A tenant with more than MAX_ENDPOINTS endpoints is not summed.
local MAX_KINDS, MAX_ENDPOINTS, MAX_COUNTED = 1000, 100, 5000
local kinds, known, summed, counted = {}, {}, {}, 0
local function parts_of(lane)
  if #config().attributes > 2 then return nil end
  local tenant, kind, endpoint = tenant_of(lane), kind_of(lane), endpoint_of(lane)
  if not kind then return nil end
  local named = 'kind=' .. kind
  if endpoint then named = named .. ';endpoint=' .. endpoint end
  if lane_of(ATTRIBUTES, tenant, named) ~= lane then return nil end
  return tenant, kind
end

local function has_others(lane)
  for name in string.gmatch(lane, ';([^=;]+)=') do
    if name ~= 'endpoint' and name ~= 'kind' then return true end
  end
  return false
end

local function learn(kind)
  if known[kind] then return false end
  known[kind], kinds[#kinds + 1] = true, kind
  return true
end

-- learn_kinds adds the kinds of a slice, and returns whether all kinds are known.
local function learn_kinds(lanes, begins, ends)
  local key = headgate .. 'kinds'
  local names = read('SRANDMEMBER', key, MAX_KINDS + 2)
  if not names[1] and not begins then return false end
  for _, name in ipairs(config().kinds or {}) do learn(escape(name)) end
  local all = names[1] ~= nil
  for _, name in ipairs(names) do
    if name == '*' then all = false else learn(name) end
  end
  local others = false
  for _, lane in ipairs(lanes) do
    local _, kind = parts_of(lane)
    if kind and learn(kind) then plan('SADD', key, kind) end
    others = others or has_others(lane)
  end
  if others or #kinds > MAX_KINDS then
    plan('DEL', key)
    return false
  end
  if ends then plan('SREM', key, '*') elseif not names[1] then plan('SADD', key, '*') end
  plan('PEXPIRE', key, 7 * 86400000)
  return all or ends
end

local function recount(lane)
  local tenant = parts_of(lane)
  if not tenant or summed[tenant] or counted > MAX_COUNTED then return end
  summed[tenant], counted = true, counted + #kinds
  local sum = 0
  for _, one in ipairs(kinds) do sum = sum + lane_length(lane_of_kind(tenant, one)) end
  local endpoints = headgate .. 'endpoints:' .. tenant
  if read('SCARD', endpoints) > MAX_ENDPOINTS then return end
  for _, one in ipairs(read('SMEMBERS', endpoints)) do
    sum, counted = sum + lane_length(one), counted + 1
  end
  backlog_add(tenant, sum - waiting_jobs(tenant))
end

-- A tenant without a virtual finish time starts two typical jobs before the queue's virtual time (start_of in
-- dispatch.lua), so a finish time that is not after that can go. If the lane
-- of such a tenant is in line meanwhile, its next turn is not charged. '*swept' is where the next sweep goes on.
local function forget_finishes()
  local vtime = headgate .. 'vtime'
  local known = read('HMGET', vtime, '*', '*typical', '*swept')
  local virtual, typical = score_read(known[1]), score_read(known[2])
  if typical <= 0 then typical = 1 end
  local slice = read('HSCAN', vtime, int(score_read(known[3])), 'COUNT', 100)
  for i = 1, #slice[2], 2 do
    local tenant, finish = slice[2][i], score_read(slice[2][i + 1])
    if string.sub(tenant, 1, 1) ~= '*' and finish < virtual then
      attempt('tenant ' .. tenant, function()
        if finish <= virtual - 2 * typical / tenant_config(tenant, now).w then plan('HDEL', vtime, tenant) end
      end)
    end
  end
  if slice[1] ~= (known[3] or '0') then plan('HSET', vtime, '*swept', slice[1]) end
end

-- The lanes of one tenant may be few among many, or nearly all.
local NAMES, STEP, ENOUGH = 2000, 200, 100
local slice
if tenant_wanted == '' then
  slice = read('SSCAN', asynq .. 'groups', ARGV[2], 'COUNT', ENOUGH)
else
  slice = {ARGV[2], {}}
  for _ = 1, NAMES / STEP do
    local step = read('SSCAN', asynq .. 'groups', slice[1], 'MATCH', tenant_wanted .. '*', 'COUNT', STEP)
    slice[1] = step[1]
    for _, lane in ipairs(step[2]) do table.insert(slice[2], lane) end
    if slice[1] == '0' or #slice[2] >= ENOUGH then break end
  end
end
local sums = false
if mends then sums = learn_kinds(slice[2], ARGV[2] == '0', slice[1] == '0') end
for _, lane in ipairs(slice[2]) do
  if tenant_wanted == '' or tenant_of(lane) == tenant_wanted then
    -- What ask gives back is given back, whatever is damaged of the rest.
    local due, e, blocked, limits
    attempt('lane ' .. lane, function() due, e, blocked, limits = look(lane) end)
    if e then attempt('lane ' .. lane, function() put(lane, due, e, blocked, limits) end) end
    if mends then attempt('lane ' .. lane, function() mend(lane) end) end
  end
end
if sums then
  -- Not all tenants of the slice may have their turn, so each time it is others.
  local lanes = slice[2]
  for i = 1, #lanes do
    local lane = lanes[(now + i) % #lanes + 1]
    attempt('lane ' .. lane, function() recount(lane) end)
  end
end
if mends then
  attempt(headgate .. 'vtime', forget_finishes)
  -- Pauses that have ended, and resumes that are old.
  local MAX_ENDED, PIECE = 500, 50
  local ended = read('ZRANGEBYSCORE', headgate .. 'pause_ends', '-inf', int(now), 'LIMIT', 0, MAX_ENDED)
  local forgotten = 0
  for first = 1, #ended, PIECE do
    local last = math.min(first + PIECE - 1, #ended)
    for _, number in ipairs(read('ZMSCORE', headgate .. 'pause_changes', unpack(ended, first, last))) do
      forgotten = math.max(forgotten, tonumber(number or 0))
    end
    plan('HDEL', headgate .. 'pauses', unpack(ended, first, last))
    plan('ZREM', headgate .. 'pause_changes', unpack(ended, first, last))
    plan('ZREM', headgate .. 'pause_ends', unpack(ended, first, last))
  end
  if forgotten > 0 then plan('ZADD', headgate .. 'pause_changes', 'GT', int(forgotten), '') end
end
return {slice[1], moved}
