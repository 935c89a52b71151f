-- periodic_choose.lua: into which queue ticks go, so that workers that disagree about it,
-- because a kind has just moved, do not fire one tick into two queues.
--
-- A tick that was chosen for a job of another kind, queue or tenant, before the entry was changed, may have been
-- enqueued there, so it is not fired any more.
--
-- KEYS[1]   headgate:periodic:fired, see periodic.lua
-- ARGV      four for each tick: entry's id, tick (Unix second), the caller's queue, and the kind, queue and tenant of
--           its job in one word
-- Returns   for each {queue, after}: the queue, or '' if the tick is not to be fired: then
--           the entry continues with its first tick later than `after`
local answers = {}
for i = 1, #ARGV, 4 do
  local id, tick, queue, job = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3]
  local last, chosen, where = fired(id)
  local answer
  if last >= tick then
    answer = {'', last}
  elseif chosen > tick then
    -- A worker that chose a later tick has finished this one. The later tick may still
    -- have to be fired.
    answer = {'', chosen - 1}
  elseif chosen == tick then
    local chosen_queue, chosen_job = string.match(where, '^(%S*) ?(.*)$')
    -- Another version of Headgate noted no job.
    if chosen_job == job or chosen_job == '' then answer = {chosen_queue, 0} else answer = {'', tick} end
  else
    redis.call('HSET', KEYS[1], id, fired_write(last, tick, queue .. ' ' .. job))
    answer = {queue, 0}
  end
  answers[#answers + 1] = answer
end
return answers
