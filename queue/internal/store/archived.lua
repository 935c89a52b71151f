-- archived.lua: a page of the archived jobs, asynq's and ours, newest first.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   at: µs, and
-- ARGV[3]   id of the last job of the page before; '' for the first page
-- ARGV[4]   n: how many jobs at most
-- Returns   {cursor of the next page or '', then five for each job: id, at_us,
--           moved 1|0, msg, outcome}
-- Bound: n jobs, and two searches by halves.
-- Full memory: it runs, as it reads and deletes.
local at, last, n = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

-- before orders what was archived in one µs as Redis does, whatever its locale.
local function before(a, b)
  if a.us ~= b.us then return a.us > b.us end
  for k = 1, math.min(#a.id, #b.id) do
    local x, y = string.byte(a.id, k), string.byte(b.id, k)
    if x ~= y then return x > y end
  end
  return #a.id > #b.id
end

-- page reads what stands behind the cursor in one set; unit is what its score
-- counts, µs. The place is found by halves, for the cursor's own job may be gone.
local function page(set, unit, moved)
  local low, high = 0, read('ZCARD', set)
  while at and low < high do
    local middle = math.floor((low + high) / 2)
    local one = read('ZREVRANGE', set, middle, middle, 'WITHSCORES')
    if before({us = at, id = last}, {us = tonumber(one[2]) * unit, id = one[1]}) then high = middle else low = middle + 1 end
  end
  local found, jobs = read('ZREVRANGE', set, low, low + n, 'WITHSCORES'), {}
  for i = 1, #found, 2 do jobs[#jobs + 1] = {id = found[i], us = tonumber(found[i + 1]) * unit, moved = moved} end
  return jobs
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
  attempt('job ' .. job.id, function()
    local task = read('HMGET', task_key(job.id), 'state', 'msg', 'hg_outcome')
    local stale = job.moved == '1' and read('ZSCORE', asynq .. 'archived', job.id)
    if task[1] ~= 'archived' or stale then
      -- It was run again or deleted since: asynq's list is asynq's, ours is ours.
      if job.moved == '1' then plan('ZREM', headgate .. 'archive', job.id) end
      return
    end
    for _, value in ipairs({job.id, int(job.us), job.moved, task[2] or '', task[3] or ''}) do results[#results + 1] = value end
  end)
end
if asynqs[i] or ours[j] then results[1] = cursor end
return results
