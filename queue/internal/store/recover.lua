-- recover.lua: take jobs from a worker that does not renew their leases any more, and put
-- them where they continue.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2..] four for each job: id, lease (its score when last seen, '' for none),
--           owner when last seen ('' for none), ended '1': that worker is gone
-- Bound: the caller passes at most 50 jobs.
-- Returns   how many jobs were taken. A job whose lease or owner has changed is left alone.
-- Full memory: it runs (allow-oom). A job leaves two sets and joins one, and gets a line in its log,
-- which is bounded.
--
-- hg_lost records a run that was not settled. If its worker comes back with the end of
-- the run, late.lua finds it there.
local now = clock()
local taken = 0
local pausing = read('EXISTS', headgate .. 'pauses') == 1

local function take(id, seen, owner, ended)
  local lease = read('ZSCORE', asynq .. 'lease', id)
  if (lease and tonumber(lease) or '') ~= (tonumber(seen) or '') then return end
  if not lease and not read('LPOS', asynq .. 'active', id) then return end
  local key = task_key(id)
  local task = read('HMGET', key, 'state', 'group', 'hg_slot', 'hg_done', 'hg_crashes', 'hg_called', 'hg_permits', 'hg_owner',
    'hg_released', 'hg_log', 'hg_lost', 'hg_beside', 'hg_first', 'hg_cost', 'hg_costs')
  if task[1] then
    if (task[8] or '') ~= owner then return end
    local earliest, latest, position = slot_read(task[3])
    local crashes, called, fields = tonumber(task[5] or 0), task[6], {}
    local function set(name, value) fields[#fields + 1], fields[#fields + 2] = name, value end
    -- A job that was not admitted by a gate, or that was settled, cannot have crashed its
    -- worker. suspects.go explains what follows from a crash.
    if owner ~= '' and not task[4] then
      local counted = 0
      if ended == '1' and (crashes == 0 or called == 'alone' or (crashes == 1 and called)) then
        crashes, counted = crashes + 1, 1
      elseif ended == '1' and called then
        local beside = tonumber(task[12] or 0) + 1
        if beside >= 3 then crashes = 3 end
        counted = 2
        set('hg_beside', int(beside))
      end
      if counted > 0 then set('hg_crashes', int(crashes)) end
      set('hg_unsure', '1')
      if not task[13] then set('hg_first', first_run(task[9], now, owner)) end
      local runs = lost_read(task[11])
      runs[#runs + 1] = {owner, counted}
      if earliest > 0 and earliest <= now and (task[2] or '') ~= '' then
        event_of_slot(id, task[2], LOST, math.min(math.max(earliest, latest), now), costs_taken(task[14], task[15]))
      end
      set('hg_lost', lost_write(runs))
    end
    if not task[4] then
      local log = log_begin(task[10], task[9], position) .. log_line(now, 'recovered', '', '', '', '', 'its worker is gone')
      set('hg_log', log_add(task[10], log))
      set('hg_released', '')
    end
    -- Another job becomes the probe of the holds that it tried.
    local tries
    if pausing and task[2] and task[2] ~= '' then
      tries = select(3, paused_until(tenant_of(task[2]), kind_of(task[2]), endpoint_of(task[2]), id))
      if tries then hold_untried(tries, now) end
    end
    if task[4] or crashes >= 3 or not task[2] or task[2] == '' then
      -- A worker only has to put it away, or it has no lane: it needs no slot.
      pend(id)
    else
      to_lane(task[2], id, position or BAND + now, now, tries ~= nil)
      set('hg_slot', slot_write(0, 0, position or BAND + now))
    end
    if fields[1] then plan('HSET', key, unpack(fields)) end
    plan('HDEL', key, 'hg_owner', 'hg_called')
    free_permits(id, task[7], now)
  elseif read('EXISTS', key) == 1 then
    error('its state is gone', 0)
  end
  plan('ZREM', asynq .. 'lease', id)
  plan('LREM', asynq .. 'active', 1, id)
  taken = taken + 1
end

for i = 2, #ARGV, 4 do
  local id, seen, owner, ended = unpack(ARGV, i, i + 3)
  attempt('job ' .. id, function() take(id, seen, owner, ended) end)
end
return taken
