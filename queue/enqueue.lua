-- enqueue.lua: accept jobs, each on its own: taken, known already, or refused.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2..] eight for each job:
--   id, msg (asynq's encoding, without group), tenant (escaped),
--   attributes ("name=value;..." escaped, sorted), cost, deadline µs or 0,
--   due (whole Unix seconds) or 0 for now, digest (what the job is)
-- Returns   for each job {answer, a, b}:
--   {1}  taken            {0, state} the same job is there already
--   {-1} another job has this id        {-2, depth, cap} backlog full
--   {-3, limit, most} cost that the limit never admits
local now = clock()
local results, accepted = {}, 0
for i = 2, #ARGV, 8 do
  local id, msg, tenant, attributes = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local cost, deadline, due, digest = tonumber(ARGV[i + 4]), ARGV[i + 5], ARGV[i + 6], ARGV[i + 7]
  local key = task_key(id)
  local there = redis.call('HMGET', key, 'state', 'hg_digest')
  local answer
  if there[1] then
    answer = there[2] == digest and {0, there[1]} or {-1}
  end

  local lane = tenant
  if not answer then
    lane = lane_name(tenant, attributes)
    local cap = config().max_backlog or 0
    if cap > 0 then
      local depth = tonumber(redis.call('HGET', headgate .. 'backlog', tenant) or 0)
      if depth >= cap then answer = {-2, depth, cap} end
    end
  end
  if not answer and cost > 1 then
    -- Only b is read of the limits here, so their calendars are not needed.
    local own = tenant_config(tenant, now)
    for _, limit in ipairs(config().limits) do
      local spec = own.l[limit.name] or limit.spec
      if spec.a ~= 'cc' and spec.b > 0 and cost > spec.b then
        answer = {-3, limit.name, spec.b}
        break
      end
    end
  end

  if not answer then
    answer = {1}
    accepted = accepted + 1
    local fields = {'msg', with_group(msg, lane), 'group', lane, 'hg_digest', digest}
    if cost ~= 1 then fields[#fields + 1] = 'hg_cost'; fields[#fields + 1] = ARGV[i + 4] end
    if deadline ~= '0' then fields[#fields + 1] = 'hg_deadline'; fields[#fields + 1] = deadline end
    fields[#fields + 1] = 'state'
    fields[#fields + 1] = due == '0' and 'aggregating' or 'scheduled'
    redis.call('HSET', key, unpack(fields))
    if due == '0' then
      -- Jobs of one call keep their order: each stands a µs behind the one before.
      lane_push(lane, id, now + (i - 2) / 8)
      backlog_add(tenant, 1)
      -- A lane with jobs is known to the dispatcher already.
      if lane_length(lane) == 1 then wake(lane, now) end
    else
      redis.call('ZADD', asynq .. 'scheduled', due, id)
    end
  end
  results[#results + 1] = answer
end
if accepted > 0 then redis.call('HINCRBY', headgate .. 'totals', 'enqueued', accepted) end
return results
