-- begin.lua: what a worker has to know of the jobs it was handed, and its mark
-- on them: whoever settles later must still be their owner.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2..] four for each job: id, owner (new for every run of a job), tenant, kind (both escaped)
-- Returns   for each job: answer, earliest_us, latest_us, crashes, base, first, flags, accepted_us;
--           and at last the time, µs
--   answer  'go' it has a slot | 'slot' it needs one | 'done' it was called
--           already | 'failed' it ended before without success | 'gone' it is
--           not this worker's any more
--           | 'crashed' it took three workers with it
--   base    failed attempts that were forgiven
--   first   when the first run began whose call may have been made, µs
--   flags   1: an earlier run made a call of which nobody knows what came of it; 2: the job
--           tries what a hold keeps others from
--   accepted_us  when it came into its lane for the first time, or was to come; 0: not known
local now = clock()
local results = {}
for i = 2, #ARGV, 4 do
  local id, owner, tenant, kind = unpack(ARGV, i, i + 3)
  local answer, e, c, crashes, base, first, unsure, position, probe = 'slot', 0, 0, 0, 0, now, 0, nil, 0
  local understood = attempt('job ' .. id, function()
    local task = read('HMGET', task_key(id), 'state', 'hg_slot', 'hg_done', 'hg_crashes', 'hg_base', 'hg_first', 'hg_unsure', 'hg_owner', 'group')
    e, c, position = slot_read(task[2])
    -- A run before this one was not settled: asynq took the job back while its call
    -- may have been under way, as it does when the time to stop is up. That call used
    -- the slot, and nobody knows what comes of it.
    local unsettled = task[8] and task[8] ~= owner and string.sub(task[8], -1) ~= '!' and not task[3]
    if unsettled then e, c = 0, 0 end
    crashes, base = tonumber(task[4] or 0), tonumber(task[5] or 0)
    first = tonumber(string.match(task[6] or int(now), '^%d+'))
    unsure = (task[7] or task[4] or unsettled) and 1 or 0
    if task[1] ~= 'active' then
      answer = 'gone'
    elseif task[3] then
      answer = task[3] == '1' and 'done' or 'failed'
    elseif crashes >= 3 then
      answer = 'crashed'
    -- A slot that lies further ahead than any is given was given before the clock was set back.
    elseif e > 0 and e <= now + 10000000 then
      local paused, due, tries = paused_until(tenant, kind, endpoint_of(task[9] or ''), id)
      if paused <= now and not due then answer = 'go' end
      if tries then probe = 2 end
    end
    int(base)
    int(first)
    if answer ~= 'gone' then
      local fields = {'hg_owner', owner, 'hg_first', task[6] or int(now) .. ' ' .. owner}
      if unsettled then
        fields[5], fields[6], fields[7], fields[8] = 'hg_slot', slot_write(0, 0, position or BAND + now), 'hg_unsure', '1'
        plan('HDEL', task_key(id), 'hg_marks')
      end
      plan('HSET', task_key(id), unpack(fields))
    end
  end)
  -- What cannot be understood is nobody's: no worker may do anything about it.
  if not understood then answer, e, c, crashes, base, first = 'gone', 0, 0, 0, 0, now end
  for _, value in ipairs({answer, int(e), int(c), crashes, base, int(first), unsure + probe, int((position or 0) % BAND)}) do
    results[#results + 1] = value
  end
end
results[#results + 1] = int(now)
return results
