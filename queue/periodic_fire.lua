-- periodic_fire.lua: enqueue the jobs of ticks, each tick once.
--
-- Behind enqueue.lua, which is the function enqueue_jobs here and reads its
-- arguments from ARGV.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   n, the number of ticks
-- ARGV[3..] n pairs: entry's id, tick (Unix second); then the n jobs as in enqueue.lua
-- Returns   for each tick what enqueue.lua says, or {0, 'fired', ''} when it went
--           before, or is too old to tell
-- Clock     TIME of this Redis
--
-- headgate:{queue}:periodic, a sorted set, has the last tick of each entry that
-- went into this queue. It is written together with the job, so a tick is in it
-- if and only if its job was enqueued, whatever becomes of the job or the worker.
-- No tick goes when it is more than a day late, so what is older can be
-- forgotten: a process that was paused for longer is refused by the time alone.
local given, n = ARGV, tonumber(ARGV[2])
local width = (#given - 2 - 2 * n) / n
local fence = headgate .. 'periodic'
local oldest = tonumber(redis.call('TIME')[1]) - 25 * 3600
redis.call('ZREMRANGEBYSCORE', fence, '-inf', '(' .. int(oldest))
local answers = {}
for i = 1, n do
  local id, tick = given[1 + 2 * i], tonumber(given[2 + 2 * i])
  local last = tonumber(redis.call('ZSCORE', fence, id) or 0)
  if tick <= last or tick < oldest then
    answers[i] = {0, 'fired', ''}
  else
    ARGV = {given[1]}
    for k = 1, width do ARGV[1 + k] = given[2 + 2 * n + (i - 1) * width + k] end
    -- One at a time: an error in the midst leaves no job without its tick.
    answers[i] = enqueue_jobs()[1]
    if answers[i][1] >= 0 then redis.call('ZADD', fence, int(tick), id) end
  end
end
redis.call('EXPIRE', fence, 26 * 3600)
return answers
