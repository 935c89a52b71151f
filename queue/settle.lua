-- settle.lua: what came of calls, in one round trip for all of them.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2..] five for each job: id, owner, tenant (escaped), outcome, until_us
--   outcome  'done'    the call succeeded: it must never be made again
--            'keep'    not called: the job keeps its slot for another worker
--            'free'    not called or failed: the slot is spent
--            'alone'   about to be called with nothing beside it (see crashes)
--   until_us the tenant is paused until then, µs from now; 0: not
-- Returns   for each job 1, or 0 when it is not this worker's any more: then
--           nothing was written.
local now = clock()
local results = {}
for i = 2, #ARGV, 5 do
  local id, owner, tenant, outcome, pause = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], tonumber(ARGV[i + 4])
  local key = task_key(id)
  local task = redis.call('HMGET', key, 'hg_owner', 'hg_permits', 'hg_slot', 'hg_done')
  -- An owner who is through is marked, not forgotten: the same message may come
  -- twice when a reply was lost.
  local mine = task[1] == owner or task[1] == owner .. '!'
  if mine then
    if outcome == 'done' and not task[4] then
      redis.call('HSET', key, 'hg_done', '1')
      redis.call('HINCRBY', headgate .. 'done', tenant, 1)
    elseif outcome == 'free' then
      local _, _, position = slot_read(task[3])
      redis.call('HSET', key, 'hg_slot', slot_write(0, 0, position or now))
      redis.call('HDEL', key, 'hg_alone')
    end
    if outcome == 'free' or outcome == 'keep' then
      redis.call('HSET', key, 'hg_owner', owner .. '!')
    elseif outcome == 'alone' then
      redis.call('HSET', key, 'hg_alone', '1')
    end
    if outcome == 'done' or outcome == 'free' then free_permits(id, task[2], now) end
    if pause > 0 and now + pause > paused_until(tenant) then
      redis.call('HSET', headgate .. 'pauses', tenant, int(now + pause))
    end
  end
  results[#results + 1] = mine and 1 or 0
end
return results
