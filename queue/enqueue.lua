-- enqueue.lua: accept jobs, each on its own: taken, known already, or refused.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2..] fourteen for each job:
--   id, msg (asynq's encoding, without group), tenant (escaped),
--   attributes ("name=value;..." escaped, sorted), kind (escaped),
--   cost, costs ("unit=n;..." or ''), band (0 high, 1 normal, 2 low),
--   deadline µs or 0, due (whole Unix seconds) or 0 for now,
--   digest (what the job is), unique (the key that it holds, or ''),
--   window (µs for which it holds the key; 0: until it ends),
--   next (what follows on its end, as JSON, or '')
-- Returns   for each job {answer, a, b}:
--   {1}  taken            {0, state, id} the same job is there already; state '': it is forgotten
--   {-1} another job has this id or key {-2, depth, cap} the tenant's backlog is full
--   {-3, limit, most, cost, unit} the limit never admits so much
--   {-4, depth, cap} the queue's backlog is full
local now = clock()
local results, accepted, came = {}, 0, {}

-- holder is the job that holds a key which frees itself: nil when none does.
local function holder(unique, window, digest)
  local name = headgate .. 'unique:' .. unique
  local id = redis.call('GET', name)
  if not id then return nil end
  local there = redis.call('HMGET', task_key(id), 'state', 'hg_digest', 'hg_done')
  if window == '0' and (not there[1] or there[3] or there[1] == 'archived' or there[1] == 'completed') then return nil end
  if there[1] and there[2] ~= digest then return {-1} end
  return {0, there[1] or '', id}
end

for i = 2, #ARGV, 14 do
  local id, msg, tenant, attributes, kind = unpack(ARGV, i, i + 4)
  local cost, more, band, deadline, due, digest, unique, window, following = unpack(ARGV, i + 5, i + 13)
  local key = task_key(id)
  local there = redis.call('HMGET', key, 'state', 'hg_digest')
  local answer
  if there[1] then
    answer = there[2] == digest and {0, there[1], id} or {-1}
  elseif unique ~= '' then
    answer = holder(unique, window, digest)
  end

  local lane = tenant
  if not answer then
    lane = lane_name(tenant, 'kind=' .. kind .. ';' .. attributes)
    local cap, whole = config().max_backlog or 0, config().max_queue or 0
    if cap > 0 or whole > 0 then
      local depths = redis.call('HMGET', headgate .. 'backlog', tenant, '*')
      depths[1], depths[2] = tonumber(depths[1] or 0) + (came[tenant] or 0), tonumber(depths[2] or 0) + (came['*'] or 0)
      if cap > 0 and tonumber(depths[1] or 0) >= cap then answer = {-2, tonumber(depths[1]), cap} end
      if whole > 0 and tonumber(depths[2] or 0) >= whole then answer = {-4, tonumber(depths[2]), whole} end
    end
  end
  if not answer and (cost ~= '1' or more ~= '') then
    -- Only b is read of the limits here, so their calendars are not needed.
    local own, costs = tenant_config(tenant, now), costs_read(cost, more)
    for _, limit in ipairs(config().limits) do
      local spec, n = own.l[limit.name] or limit.spec, costs[limit.unit or ''] or 0
      if spec.a ~= 'cc' and spec.b > 0 and n > spec.b then
        answer = {-3, limit.name, spec.b, n, limit.unit or ''}
        break
      end
    end
  end

  if not answer then
    answer = {1}
    accepted = accepted + 1
    local fields = {'msg', with_group(msg, lane), 'group', lane, 'hg_digest', digest}
    local function field(name, value) fields[#fields + 1] = name; fields[#fields + 1] = value end
    if cost ~= '1' then field('hg_cost', cost) end
    if more ~= '' then field('hg_costs', more) end
    if following ~= '' then field('hg_next', following) end
    if deadline ~= '0' then
      field('hg_deadline', deadline)
      redis.call('ZADD', headgate .. 'deadlines', deadline, id)
    end
    if unique ~= '' then
      local name = headgate .. 'unique:' .. unique
      if window == '0' then
        redis.call('SET', name, id)
        field('hg_unique', unique)
      else
        redis.call('SET', name, id, 'PX', math.ceil(tonumber(window) / 1000))
      end
    end
    -- Jobs of one call keep their order: each stands a µs behind the one before.
    local place = tonumber(band) * BAND + (i - 2) / 14
    if due == '0' then
      field('state', 'aggregating')
      redis.call('HSET', key, unpack(fields))
      lane_push(lane, id, place + now)
      note_band(lane, place + now)
      backlog_add(tenant, 1)
      came[tenant], came['*'] = (came[tenant] or 0) + 1, (came['*'] or 0) + 1
      -- A lane with jobs is known to the dispatcher already.
      wake(lane, now)
    else
      field('state', 'scheduled')
      field('hg_slot', slot_write(0, 0, place + tonumber(due) * 1000000))
      redis.call('HSET', key, unpack(fields))
      redis.call('ZADD', asynq .. 'scheduled', due, id)
    end
  end
  results[#results + 1] = answer
end
if accepted > 0 then redis.call('HINCRBY', headgate .. 'totals', 'enqueued', accepted) end
return results
