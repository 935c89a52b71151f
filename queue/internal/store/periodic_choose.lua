-- periodic_choose.lua: into which queue ticks go, so that workers that disagree about it,
-- because a kind has just moved, do not fire one tick into two queues.
--
-- KEYS[1]   headgate:periodic:fired, see periodic.lua
-- ARGV      three for each tick: entry's id, tick (Unix second), the caller's queue
-- Returns   for each {queue, after}: the queue, or '' if the tick is not to be fired: then
--           the entry continues with its first tick later than `after`
local answers = {}
for i = 1, #ARGV, 3 do
  local id, tick, queue = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local last, chosen, where = fired(id)
  local answer
  if last >= tick then
    answer = {'', last}
  elseif chosen > tick then
    -- A worker that chose a later tick has finished this one. The later tick may still
    -- have to be fired.
    answer = {'', chosen - 1}
  elseif chosen == tick then
    answer = {where, 0}
  else
    redis.call('HSET', KEYS[1], id, fired_write(last, tick, queue))
    answer = {queue, 0}
  end
  answers[#answers + 1] = answer
end
return answers
