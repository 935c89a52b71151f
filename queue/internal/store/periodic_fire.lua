-- periodic_fire.lua: enqueue the jobs of ticks, each tick once.
--
-- It comes after enqueue.lua, which is the function enqueue_jobs here and reads its
-- arguments from ARGV.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   n, the number of ticks
-- ARGV[3..] n pairs: entry's id, tick (Unix second); then the n jobs as in enqueue.lua
-- Returns   for each tick what enqueue.lua returns, or {0, 'fired', ''} if it was fired
--           before or is too old to know; {-5, fault} for all if the queue is damaged
-- Clock     TIME of this Redis
--
-- headgate:{queue}:periodic, a sorted set, has the last tick of each entry that was fired
-- into this queue. It is written together with the job, so it contains a tick if and only
-- if the tick's job was enqueued, whatever happens to the job or the worker. No tick is
-- fired more than a day late, so older ones are deleted: a process that was paused for
-- longer is refused because of the time alone.
local given, n = ARGV, tonumber(ARGV[2])
local width = (#given - 2 - 2 * n) / n
local fence = headgate .. 'periodic'
local oldest = tonumber(redis.call('TIME')[1]) - 25 * 3600
local answers, firing, last = {}, {}, {}
-- The fence remembers what was fired, so enqueue.lua does not need to.
ARGV = {given[1], '', '0', '0'}

local function fire(i)
  local id, tick = given[1 + 2 * i], tonumber(given[2 + 2 * i])
  last[id] = last[id] or tonumber(read('ZSCORE', fence, id) or 0)
  if tick <= last[id] or tick < oldest then
    answers[i] = {0, 'fired', ''}
  else
    firing[#firing + 1], last[id] = i, tick
    for k = 1, width do ARGV[#ARGV + 1] = given[2 + 2 * n + (i - 1) * width + k] end
  end
end

local what = 'periodic jobs'
local understood = attempt(what, function()
  for i = 1, n do fire(i) end
  for k, answer in ipairs(enqueue_jobs()) do
    local i = firing[k]
    answers[i] = answer
    if answer[1] >= 0 then plan('ZADD', fence, given[2 + 2 * i], given[1 + 2 * i]) end
  end
  plan('ZREMRANGEBYSCORE', fence, '-inf', '(' .. int(oldest))
  plan('EXPIRE', fence, 26 * 3600)
end)
if not understood then
  for i = 1, n do answers[i] = {-5, faults[what]} end
end
return answers
