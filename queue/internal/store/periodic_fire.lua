-- periodic_fire.lua: enqueue the jobs of ticks, each tick once, or skip them.
--
-- It comes after enqueue.lua, which is the function enqueue_jobs here and reads its
-- arguments from ARGV.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   n, the number of ticks
-- ARGV[3]   calendars as JSON, '' for none; needed if a tick has 'replace'
-- ARGV[4..] three for each tick: entry's id, tick (Unix second), overlap: what happens if
--           the entry's last job has not ended: 'skip' the tick | 'queue' its job behind the
--           last one | 'replace' the last one if it still waits, else queue;
--           then the layout and the n jobs as in enqueue.lua
-- Returns   for each tick what enqueue.lua returns, {0, 'skipped', ''} if it was skipped, or
--           {0, 'fired', ''} if it was decided before or is too old to know; {-5, fault} for
--           all if the queue is damaged
-- Clock     TIME of this Redis
-- Bound: that of enqueue.lua, and for each tick its entry's last job.
--
-- headgate:{queue}:periodic, a sorted set, has the last tick of each entry that was decided
-- in this queue. It is written together with the job, so whatever happens to the job or the
-- worker, no tick is decided again. No tick is fired more than a day late, so older ones are
-- deleted: a process that was paused for longer is refused because of the time alone.
local given, n = ARGV, tonumber(ARGV[2])
local FIRST_TICK, EACH = 4, 3
local LAYOUT = FIRST_TICK + n * EACH
local width = (#given - LAYOUT) / n
local fence = headgate .. 'periodic'
local now = clock()
local oldest = math.floor(now / 1000000) - 25 * 3600
local REPLACED = 'replaced by the job of the next tick of its periodic job'
-- A schedule may have one tick a year.
local RECORD_S = 400 * 24 * 3600
local ENDED = {archived = true, completed = true}
local answers, firing, last = {}, {}, {}
local records, open = {}, {} -- by entry: its record; its last job if that has not ended
-- The fence remembers what was fired, so enqueue.lua does not need to.
ARGV = {given[1], '', '0', '0', given[LAYOUT]}

local function tick_of(i) return unpack(given, FIRST_TICK + (i - 1) * EACH, FIRST_TICK + i * EACH - 1) end

local function look(entry)
  records[entry] = {job = '', fired = 0, skipped = 0, last_skipped = 0}
  attempt('periodic job ' .. entry, function()
    records[entry] = record_read(read('GET', record_key(entry))) or records[entry]
    local job = records[entry].job ~= '' and job_read(records[entry].job)
    if job and not job.done and not ENDED[job.state] then open[entry] = job end
  end)
end

-- decided notes that a tick was enqueued or skipped.
local function decided(entry, tick)
  plan('ZADD', fence, tick, entry)
  plan('SET', record_key(entry), record_write(records[entry]), 'EX', RECORD_S)
end

local function fire(i)
  local entry, tick, overlap = tick_of(i)
  tick = tonumber(tick)
  last[entry] = last[entry] or tonumber(read('ZSCORE', fence, entry) or 0)
  if tick <= last[entry] or tick < oldest then
    answers[i] = {0, 'fired', ''}
    return
  end
  last[entry] = tick
  if not records[entry] then look(entry) end
  if overlap == 'skip' and open[entry] then
    local record = records[entry]
    record.skipped, record.last_skipped = record.skipped + 1, tick
    answers[i] = {0, 'skipped', ''}
    decided(entry, int(tick))
  else
    firing[#firing + 1] = i
    for k = 0, width - 1 do ARGV[#ARGV + 1] = given[LAYOUT + 1 + (i - 1) * width + k] end
  end
end

-- replace cancels a job that waits. A call in flight cannot be taken back.
local function replace(id, job)
  if job.state == 'active' then return end
  job.position = job.state == 'aggregating' and tonumber(read('ZSCORE', lane_key(job.group), id)) or nil
  job.msg = read('HGET', task_key(id), 'msg') or ''
  job.lane = job.group ~= '' and job.group or task_lane(job.msg)
  if not take_out(id, job) then return end
  cancel(id, job, REPLACED, now)
  if job.state == 'aggregating' then lane_close(job.group, now, true) end
end

local what = 'periodic jobs'
local understood = attempt(what, function()
  for i = 1, n do
    local _, _, overlap = tick_of(i)
    if overlap == 'replace' then
      set_calendars(given[3])
      break
    end
  end
  for i = 1, n do fire(i) end
  for k, answer in ipairs(enqueue_jobs()) do
    local i = firing[k]
    local entry, tick, overlap = tick_of(i)
    answers[i] = answer
    if answer[1] >= 0 then
      local record = records[entry]
      local before = record.job
      record.job, record.fired = given[LAYOUT + 1 + (i - 1) * width], tonumber(tick)
      decided(entry, tick)
      if overlap == 'replace' and open[entry] then
        attempt('job ' .. before, function() replace(before, open[entry]) end)
      end
    end
  end
  plan('ZREMRANGEBYSCORE', fence, '-inf', '(' .. int(oldest))
  plan('EXPIRE', fence, 26 * 3600)
end)
if not understood then
  for i = 1, n do answers[i] = {-5, faults[what]} end
end
return answers
