-- recover.lua: take a job from a worker that is gone, and send it on its way.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2..] two for each job: id, lease (its score when last seen, '' for none)
-- Returns   how many jobs were taken; one whose lease has moved is left alone.
local now = clock()
local taken = 0

local function take(id, seen)
  local lease = read('ZSCORE', asynq .. 'lease', id)
  if (lease and tonumber(lease) or '') ~= (tonumber(seen) or '') then return end
  if not lease and not read('LPOS', asynq .. 'active', id) then return end
  local key = task_key(id)
  local task = read('HMGET', key, 'state', 'group', 'hg_slot', 'hg_done', 'hg_crashes', 'hg_alone', 'hg_permits', 'hg_owner', 'hg_released', 'hg_log')
  if task[1] then
    local _, _, position = slot_read(task[3])
    -- A job that no gate had seen cannot have hurt its worker. After two
    -- crashes it runs alone, and only a crash in that state is its own.
    local crashes = tonumber(task[5] or 0)
    if task[8] and string.sub(task[8], -1) ~= '!' and not task[4] and (crashes < 2 or task[6]) then
      crashes = crashes + 1
      plan('HSET', key, 'hg_crashes', int(crashes))
    end
    if not task[4] then
      local log = log_begin(task[10], task[9], position) .. log_line(now, 'recovered', '', '', '', '', 'its worker is gone')
      plan('HSET', key, 'hg_log', log_add(task[10], log), 'hg_released', '')
    end
    plan('HDEL', key, 'hg_owner', 'hg_alone')
    if task[4] or crashes >= 3 or not task[2] or task[2] == '' then
      pend(id) -- only to be put away by a worker, or without a lane: no slot is needed
    else
      plan('HSET', key, 'hg_slot', slot_write(0, 0, position or BAND + now))
      to_lane(task[2], id, position or BAND + now, now)
    end
    free_permits(id, task[7], now)
  elseif read('EXISTS', key) == 1 then
    error('its state is gone', 0)
  end
  plan('ZREM', asynq .. 'lease', id)
  plan('LREM', asynq .. 'active', 1, id)
  taken = taken + 1
end

for i = 2, #ARGV, 2 do
  attempt('job ' .. ARGV[i], function() take(ARGV[i], ARGV[i + 1]) end)
end
return taken
