-- hand.lua: hand jobs over to the worker that asks.
--
-- A library behind lanes.lua, for dispatch.lua. A job that is handed over is active, has
-- a lease, and carries the mark of its run: only its owner may settle it. The reply
-- contains everything that the worker needs to know of the job.
--
-- A reply may be lost. The ids of the jobs handed over last are kept for a minute, and
-- the jobs are handed over again if the worker says that it got no reply.
--
--   handed:<worker>   JSON list of what it was last handed: the number of its first run, and
--                     the ids
local HAND_WORKER, HAND_RUN, LEASE_S, KEPT_MS = ARGV[9], tonumber(ARGV[10]), 30, 60000
local HANDED_KEY = headgate .. 'handed:' .. HAND_WORKER
local handed, handed_bytes = {}, 0
local MAX_BYTES = 2097152 -- of messages, in a reply
local function hand_full(room) return #handed >= room or handed_bytes >= MAX_BYTES end

-- hand_look reads a task, and returns nil if it is gone. It raises if the task is
-- damaged.
local function hand_look(id)
  local key = task_key(id)
  local t = read('HMGET', key, 'state', 'group', 'hg_slot', 'hg_done', 'hg_cost', 'hg_costs', 'hg_deadline',
    'hg_permits', 'hg_crashes', 'hg_base', 'hg_first', 'hg_unsure', 'msg', 'hg_owner')
  if not t[1] then
    -- A task that is gone was deleted by asynq's tools. One without a state is damaged.
    if read('EXISTS', key) == 1 then error('its state is gone', 0) end
    return nil
  end
  local job = {
    id = id, key = key, state = t[1], group = t[2] or '', done = t[4], costs = costs_read(t[5], t[6]), deadline = tonumber(t[7] or 0),
    permits = t[8], crashes = tonumber(t[9] or 0), base = tonumber(t[10] or 0), first = t[11], unsure = t[12] or t[9], msg = t[13] or '', owner = t[14],
  }
  if not job.deadline then error('its deadline is no number', 0) end
  job.began = first_read(job.first)
  if not (job.crashes >= 0 and job.crashes < 2 ^ 31 and job.base >= 0 and job.base < 2 ^ 31 and job.began >= 0 and job.began < 2 ^ 53) then
    error('its attempts, or the begin of the first, cannot be', 0)
  end
  job.e, job.c, job.position, job.back = slot_read(t[3])
  if job.c > 0 and job.back > clock() then job.e, job.c, job.back = 0, 0, 0 end
  return job
end

-- hand_answer returns what the worker is to do with a job: 'go' it has a slot, 'slot' it
-- needs one, 'done' its call succeeded before, 'failed' it ended before without success,
-- 'crashed' three workers died with it.
local function hand_answer(job)
  if job.done then return job.done == '1' and 'done' or 'failed' end
  if job.crashes >= 3 then return 'crashed' end
  return job.e > 0 and 'go' or 'slot'
end

-- hand gives a job to the worker, with the slot e to c. fields are the other changes of
-- the task, from the third word on: the list becomes the command. Nothing after it may
-- raise, or the worker would get a job whose task was not written.
local function hand(job, answer, e, c, probe, now, fields)
  local owner = owner_write(HAND_WORKER, HAND_RUN + #handed)
  local n = #fields
  if job.state ~= 'active' then push(asynq .. 'active', job.id) end
  fields[1], fields[2], fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4] = 'HSET', job.key, 'state', 'active', 'hg_owner', owner
  plan_words(fields)
  handed[#handed + 1] = {
    job.id, job.msg, answer, e, c, job.crashes, job.base, job.first and job.began or now,
    (job.unsure and 1 or 0) + (probe and 2 or 0) + ((job.permits or '') ~= '' and 4 or 0), (job.position or 0) % BAND,
  }
  handed_bytes = handed_bytes + #job.msg
end

-- hand_lost hands over again the jobs whose reply the worker did not get, if they are of
-- the runs from `first` on. A call may arrive after a later one: what that was handed, the worker has.
local function hand_lost(first, now)
  local run, ids
  attempt(HANDED_KEY, function() run, ids = handed_read(read('GET', HANDED_KEY)) end)
  if not run or run < first or run >= HAND_RUN then return end
  for i, id in ipairs(ids) do
    attempt('job ' .. id, function()
      local job = hand_look(id)
      if not job or job.state ~= 'active' or job.owner ~= owner_write(HAND_WORKER, run + i - 1) then return end
      hand(job, hand_answer(job), job.e, job.c, false, now, {'', ''})
    end)
  end
end

-- hand_over makes all leases in one command, and returns the jobs that were handed over; and for
-- the worker how many jobs wait, how many were ever enqueued, and the number of changes of pauses.
local function hand_over(now)
  local leases = {}
  for i, job in ipairs(handed) do leases[2 * i - 1], leases[2 * i] = math.floor(now / 1000000) + LEASE_S, job[1] end
  if leases[1] then
    plan('ZADD', asynq .. 'lease', unpack(leases))
    plan('SET', HANDED_KEY, handed_write(HAND_RUN, handed), 'PX', KEPT_MS)
  end
  local totals, waits = {}, 0
  attempt(headgate .. 'totals', function() totals = read('HMGET', headgate .. 'totals', 'enqueued', 'pauses') end)
  attempt(headgate .. 'tenants', function() waits = waiting_jobs('*') end)
  return handed, waits, tonumber(totals[1] or 0) or 0, tonumber(totals[2] or 0) or 0
end
