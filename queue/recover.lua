-- recover.lua: take a job from a worker that is gone, and send it on its way.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2..] two for each job: id, lease (its score when last seen, '' for none)
-- Returns   how many jobs were taken; one whose lease has moved is left alone.
local now = clock()
local taken = 0
for i = 2, #ARGV, 2 do
  local id, seen = ARGV[i], ARGV[i + 1]
  local lease = redis.call('ZSCORE', asynq .. 'lease', id)
  if (lease and tonumber(lease) or '') == (tonumber(seen) or '') and deactivate(id) then
    taken = taken + 1
    local key = task_key(id)
    local task = redis.call('HMGET', key, 'state', 'group', 'hg_slot', 'hg_done', 'hg_crashes', 'hg_alone', 'hg_permits', 'hg_owner', 'hg_released', 'hg_log')
    if task[1] then
      redis.call('HDEL', key, 'hg_owner', 'hg_alone')
      free_permits(id, task[7], now)
      -- A job that no gate had seen cannot have hurt its worker. After two
      -- crashes it runs alone, and only a crash in that state is its own.
      local crashes = tonumber(task[5] or 0)
      if task[8] and string.sub(task[8], -1) ~= '!' and not task[4] and (crashes < 2 or task[6]) then
        crashes = redis.call('HINCRBY', key, 'hg_crashes', 1)
      end
      local _, _, position = slot_read(task[3])
      local fields = {}
      if not task[4] then
        local log = log_begin(task[10], task[9], position) .. log_line(now, 'recovered', '', '', '', '', 'its worker is gone')
        fields = {'hg_log', log_add(task[10], log), 'hg_released', ''}
      end
      if task[4] or crashes >= 3 or not task[2] or task[2] == '' then
        -- Only to be put away by a worker, or without a lane: no slot is needed.
        redis.call('HSET', key, 'state', 'pending', 'pending_since', int(now * 1000), unpack(fields))
        pend(id)
      else
        redis.call('HSET', key, 'hg_slot', slot_write(0, 0, position or BAND + now), unpack(fields))
        to_lane(task[2], id, position or BAND + now, now)
      end
    end
  end
end
return taken
