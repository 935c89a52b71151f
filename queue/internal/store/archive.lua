-- archive.lua: move the oldest jobs of asynq's archive into Headgate's, which is not
-- trimmed.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   keep: how many jobs may stay in asynq's archive
-- ARGV[3]   for how many seconds they may stay there
-- ARGV[4]   most: the maximum number of jobs to move in one call
-- Returns   how many jobs were moved
-- Bound: it moves at most `most` jobs, with three commands for each.
-- Full memory: it runs (allow-oom), as it only moves ids from one set to another.
without_queue = 0
local archived, moved = asynq .. 'archived', 0
local excess = read('ZCARD', archived) - tonumber(ARGV[2])
local cutoff = clock() / 1000000 - tonumber(ARGV[3])
local most = excess > 0 and math.min(excess, tonumber(ARGV[4])) or 0
if read('ZCOUNT', archived, '-inf', int(cutoff)) > most then most = tonumber(ARGV[4]) end
if most == 0 then return 0 end
local oldest = read('ZRANGE', archived, 0, most - 1, 'WITHSCORES')
for i = 1, #oldest, 2 do
  local id, at = oldest[i], tonumber(oldest[i + 1])
  if moved >= excess and at > cutoff then break end
  attempt('job ' .. id, function()
    local state = read('HGET', task_key(id), 'state')
    if state == 'archived' then
      plan('ZADD', headgate .. 'archive', int(at * 1000000), id)
    elseif read('EXISTS', task_key(id)) == 1 then
      error('it is among the archived, and its state is ' .. tostring(state), 0)
    end -- else asynq's tools deleted the task and left its id
    plan('ZREM', archived, id)
    moved = moved + 1
  end)
end
return moved
