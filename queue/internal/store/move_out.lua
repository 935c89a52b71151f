-- move_out.lua: take jobs of tenants that leave the partition from where they are.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   calendars as JSON, '' for none
-- ARGV[3..] ids of jobs
-- Returns   how many were taken out
-- Bound: the jobs that the caller passes.
-- Full memory: it runs (allow-oom). A job leaves a set for a field of a hash.
--
-- The hash leaving has each of them, with "place score deadline": where it was, its score there, and its score
-- in deadlines, 0 for none. Nothing else knows them, so nobody calls, ends or deletes them.
local now = clock()
set_calendars(ARGV[2])
local leaving, deadlines = headgate .. 'leaving', headgate .. 'deadlines'
local n, emptied = 0, {}

-- place_of returns where a job is, and its score there; nil: a worker has it, or asynq's tools took it away.
local function place_of(id, job)
  if job.state == 'aggregating' then return 'lane', read('ZSCORE', lane_key(job.group), id) end
  if job.state == 'pending' then return 'pending', 0 end
  if job.state == 'active' then return nil end
  local score = read('ZSCORE', asynq .. job.state, id)
  if not score and job.state == 'archived' then return 'archive', read('ZSCORE', headgate .. 'archive', id) end
  return job.state, score
end

for i = 3, #ARGV do
  local id = ARGV[i]
  attempt('job ' .. id, function()
    local job = job_read(id)
    if not job or read('HEXISTS', leaving, id) == 1 then return end
    local lane = job.group ~= '' and job.group or task_lane(read('HGET', task_key(id), 'msg') or '')
    local tenant = tenant_of(lane)
    if not string.find(read('HGET', headgate .. 'moves', tenant) or '', '^left ') then return end
    local place, score = place_of(id, job)
    if not score or not take_out(id, job) then return end
    if job.state == 'aggregating' then emptied[job.group] = true end
    if job.group ~= lane then plan('HSET', task_key(id), 'group', lane) end
    free_permits(id, job.permits, now)
    local _, slot, position, back = slot_read(job.slot)
    -- If a worker gave it back with its slot, the slot's permits are of this partition's limits.
    if slot > 0 and (back or 0) > 0 then
      slot_back(id, job_limits(lane, read('HGET', task_key(id), 'msg') or '', now).all, now, slot, position, job.costs)
    end
    local deadline = read('ZSCORE', deadlines, id)
    if deadline then plan('ZREM', deadlines, id) end
    local _, size = body_read(read('HGET', task_key(id), 'hg_body'))
    if size then tenant_add(tenant, 0, 0, -1, -size) end
    plan('HSET', leaving, id, leaving_write(place, tonumber(score), tonumber(deadline or 0)))
    n = n + 1
  end)
end
for lane in pairs(emptied) do
  attempt('lane ' .. lane, function() lane_close(lane, now, true) end)
end
return n
