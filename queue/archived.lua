-- archived.lua: a page of the archived jobs, asynq's and ours, newest first.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   at: µs, and
-- ARGV[3]   id of the last job of the page before; '' for the first page
-- ARGV[4]   n: how many jobs at most
-- Returns   {cursor of the next page or '', then five for each job: id, at_us,
--           moved 1|0, msg, outcome}
local at, last, n = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

-- page reads what stands behind the cursor in one set; unit is what its score
-- counts, µs. The cursor's own job may be gone, so a mark is put in its place for
-- a moment, which finds the place whatever shares its second.
local function page(set, unit, moved)
  if redis.call('EXISTS', set) == 0 then return {} end
  local start = 0
  if at and at % unit == 0 then
    local mark = last .. '\0'
    redis.call('ZADD', set, int(at / unit), mark)
    start = redis.call('ZREVRANK', set, mark)
    redis.call('ZREM', set, mark)
  elseif at then
    start = redis.call('ZCOUNT', set, '(' .. int(math.floor(at / unit)), '+inf')
  end
  local found, jobs = redis.call('ZREVRANGE', set, start, start + n + 1, 'WITHSCORES'), {}
  for i = 1, #found, 2 do
    local us = tonumber(found[i + 1]) * unit
    if us ~= at or found[i] ~= last then jobs[#jobs + 1] = {id = found[i], us = us, moved = moved} end
  end
  return jobs
end

-- before orders what was archived in one µs as Redis does, whatever its locale.
local function before(a, b)
  if a.us ~= b.us then return a.us > b.us end
  for k = 1, math.min(#a.id, #b.id) do
    local x, y = string.byte(a.id, k), string.byte(b.id, k)
    if x ~= y then return x > y end
  end
  return #a.id > #b.id
end

local asynqs = page(asynq .. 'archived', 1000000, '0')
local ours = page(headgate .. 'archive', 1, '1')
local results, i, j, taken, cursor = {''}, 1, 1, 0, ''
while taken < n and (asynqs[i] or ours[j]) do
  local a, b = asynqs[i], ours[j]
  local job
  if a and (not b or before(a, b)) then
    job, i = a, i + 1
  else
    job, j = b, j + 1
  end
  taken = taken + 1
  cursor = int(job.us) .. ':' .. job.id
  local task = redis.call('HMGET', task_key(job.id), 'state', 'msg', 'hg_outcome')
  local stale = job.moved == '1' and redis.call('ZSCORE', asynq .. 'archived', job.id)
  if task[1] ~= 'archived' or stale then
    -- It was run again or deleted since: asynq's list is asynq's, ours is ours.
    if job.moved == '1' then redis.call('ZREM', headgate .. 'archive', job.id) end
  else
    for _, value in ipairs({job.id, int(job.us), job.moved, task[2] or '', task[3] or ''}) do results[#results + 1] = value end
  end
end
if asynqs[i] or ours[j] then results[1] = cursor end
return results
