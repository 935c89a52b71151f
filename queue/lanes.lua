-- lanes.lua: lanes, the limits they stand under, and the order among them.
--
-- A library behind limits.lua and asynq.lua. Keys, all under headgate:{queue}:
--
--   limits      hash: '*' the queue's limits as JSON, 't:'<tenant> what differs for one
--   overrides   hash: tenant -> JSON, what an operator changed for a time
--   b:<limit>:<values>   bucket of one limit (limits.lua); a concurrency limit's holds job ids
--   blocked:<limit>:<values>   lanes that wait for a permit of a concurrency limit
--   waiting     sorted set: lane -> when its own limits next admit, µs
--   ready       sorted set: lane -> virtual start time, among lanes that only share limits hold
--   vtime       hash: tenant -> virtual finish time; '*' -> the queue's virtual time
--   pauses      hash: tenant -> paused until, µs
--   backlog     hash: tenant -> jobs in its lanes; '*' -> all
--   done        hash: tenant -> jobs done
--   totals      hash: 'enqueued' -> jobs accepted
--
-- A lane that holds jobs stands in waiting, in ready, or in a blocked set. Its
-- name is TENANT;attr=VALUE;... with escaped values, and says all that its
-- limits need to know.
local headgate = 'headgate:{' .. ARGV[1] .. '}:'

local conf
local function config()
  if not conf then
    local text = redis.call('HGET', headgate .. 'limits', '*')
    conf = text and cjson.decode(text) or {limits = {}, attributes = {}}
  end
  return conf
end

-- set_calendars puts the windows that the caller made into the calendar limits.
local calendars = {}
local function set_calendars(text)
  if text ~= '' then calendars = cjson.decode(text) end
end

-- lane_name joins a tenant with those of its job's attributes that limits name.
-- attributes is "name=value;...", escaped.
local function lane_name(tenant, attributes)
  local lane = tenant
  for _, name in ipairs(config().attributes) do
    local value = string.match(';' .. attributes, ';' .. name .. '=([^;]*)')
    if value then lane = lane .. ';' .. name .. '=' .. value end
  end
  return lane
end

local function tenant_of(lane) return string.match(lane, '^[^;]*') end

local tenants = {}
local function tenant_config(tenant, now)
  local known = tenants[tenant]
  if known then return known end
  known = {w = 1, l = {}}
  local text = redis.call('HGET', headgate .. 'limits', 't:' .. tenant)
  if text then
    local own = cjson.decode(text)
    known.w = own.w or 1
    known.l = own.l or {}
  end
  text = redis.call('HGET', headgate .. 'overrides', tenant)
  if text then
    for name, change in pairs(cjson.decode(text)) do
      if change['until'] == 0 or change['until'] > now then known.l[name] = change.limit end
    end
  end
  tenants[tenant] = known
  return known
end

-- buckets are read once and written once per script, however many jobs pass.
local buckets = {}
local function bucket(entry, now)
  local known = buckets[entry.key]
  if not known then
    known = limit_open(entry.spec, entry.key, now)
    buckets[entry.key] = known
  end
  return known
end

local function save_buckets(now)
  for _, known in pairs(buckets) do limit_save(known, now) end
end

local lanes = {}
-- lane_limits lists what holds a lane: `shared` limits of the whole queue,
-- `own` ones, and `permits` of concurrency limits, each with its bucket's name.
local function lane_limits(lane, now)
  local known = lanes[lane]
  if known then return known end
  local values = {tenant = tenant_of(lane)}
  for name, value in string.gmatch(lane, ';([^=;]+)=([^;]*)') do values[name] = value end
  local tenant = tenant_config(values.tenant, now)
  known = {tenant = values.tenant, w = tenant.w, shared = {}, own = {}, all = {}, permits = {}}
  for i, limit in ipairs(config().limits) do
    local spec = tenant.l[limit.name] or limit.spec
    local parts = {}
    for j, attr in ipairs(limit.per) do parts[j] = values[attr] or '' end
    local suffix = limit.name .. ':' .. table.concat(parts, ';')
    local entry = {name = limit.name, spec = spec, key = headgate .. 'b:' .. suffix}
    if spec.a == 'cc' then
      entry.blocked = headgate .. 'blocked:' .. suffix
      known.permits[#known.permits + 1] = entry
    else
      if limit.calendar then spec.c = calendars[limit.calendar] end
      if spec.a == 'fw' and not spec.w and not spec.c then
        error('STALE the calendar of limit ' .. limit.name .. ' was not passed')
      end
      known.all[#known.all + 1] = entry
      local group = #limit.per == 0 and known.shared or known.own
      group[#group + 1] = entry
    end
  end
  lanes[lane] = known
  return known
end

-- shared_limits are those of the whole queue, which every lane stands under.
local function shared_limits(now) return lane_limits('', now).shared end

-- earliest_all is the first moment >= t at which every limit of the list admits
-- n permits, and the entry that set it. A cost beyond what a limit ever holds
-- (it was lowered after the job came) takes all that it holds.
local function earliest_all(list, now, t, n)
  local binding
  repeat
    local moved = false
    for _, entry in ipairs(list) do
      local cost = n
      if entry.spec.b > 0 and cost > entry.spec.b then cost = entry.spec.b end
      local e = limit_earliest(entry.spec, bucket(entry, now), now, t, cost)
      if e > t then t, binding, moved = e, entry, true end
    end
  until not moved
  return t, binding
end

local function commit_all(list, now, t, n)
  for _, entry in ipairs(list) do
    local cost = n
    if entry.spec.b > 0 and cost > entry.spec.b then cost = entry.spec.b end
    limit_commit(entry.spec, bucket(entry, now), now, t, cost)
  end
end

-- refund_all takes a slot back that was not used, so that its capacity is not
-- lost, wherever nothing that was given since stands on it.
local function refund_all(list, now, t, n)
  for _, entry in ipairs(list) do
    local cost = n
    if entry.spec.b > 0 and cost > entry.spec.b then cost = entry.spec.b end
    limit_refund(entry.spec, bucket(entry, now), now, t, cost)
  end
end

-- blocked_by is the first concurrency limit of a lane with no permit left.
local function blocked_by(limits, now)
  for _, entry in ipairs(limits.permits) do
    if limit_earliest(entry.spec, bucket(entry, now), now, now, 1) > now then return entry end
  end
end

-- take_permits returns the names of the permits' sets, for the task to carry.
local function take_permits(limits, id, now)
  local keys = {}
  for i, entry in ipairs(limits.permits) do
    limit_commit(entry.spec, bucket(entry, now), now, now, 1, id)
    keys[i] = entry.key
  end
  return table.concat(keys, ' ')
end

-- wake makes a lane with jobs known to the dispatcher. At once also puts a lane
-- forward that waits for its limits, for a job that brings its slot with it.
local function wake(lane, now, at_once)
  if redis.call('ZSCORE', headgate .. 'ready', lane) then return end
  redis.call('ZADD', headgate .. 'waiting', at_once and 'LT' or 'NX', int(now), lane)
end

-- free_permits gives back what a job held and lets one lane for each go on.
local function free_permits(id, held, now)
  if not held or held == '' then return end
  for key in string.gmatch(held, '%S+') do
    if redis.call('ZREM', key, id) == 1 then
      local blocked = headgate .. 'blocked:' .. string.sub(key, #headgate + 3)
      local lane = redis.call('SPOP', blocked)
      if lane then wake(lane, now, true) end
    end
  end
  if redis.call('EXISTS', task_key(id)) == 1 then redis.call('HDEL', task_key(id), 'hg_permits') end
end

local function backlog_add(tenant, n)
  if n == 0 then return end
  redis.call('HINCRBY', headgate .. 'backlog', '*', n)
  if redis.call('HINCRBY', headgate .. 'backlog', tenant, n) <= 0 then
    redis.call('HDEL', headgate .. 'backlog', tenant)
  end
end

-- hg_slot is "earliest latest position": may go from `earliest` to `latest` (µs;
-- 0: no end), and the place in the lane to which the job returns.
local function slot_read(text)
  if not text then return 0, 0, nil end
  local e, c, position = string.match(text, '^(%d+) (%d+) (%d+)$')
  return tonumber(e) or 0, tonumber(c) or 0, tonumber(position)
end

local function slot_write(e, c, position) return int(e) .. ' ' .. int(c) .. ' ' .. int(position) end

local function paused_until(tenant)
  return tonumber(redis.call('HGET', headgate .. 'pauses', tenant) or 0)
end

-- to_lane puts a job (back) into its lane.
local function to_lane(lane, id, position, now, at_once)
  lane_push(lane, id, position)
  redis.call('HSET', task_key(id), 'state', 'aggregating')
  backlog_add(tenant_of(lane), 1)
  wake(lane, now, at_once)
end
