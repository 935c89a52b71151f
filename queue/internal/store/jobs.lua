-- jobs.lua: a page of a queue's jobs in one state. It writes nothing.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   state: 'aggregating' | 'scheduled' | 'retry' | 'pending' | 'active' | 'archived'
-- ARGV[3]   at: µs, and
-- ARGV[4]   id of the last job that was looked at; '' to begin. For the lists, pending and
--           active, `at` is how many jobs were looked at
-- ARGV[5]   the maximum number of rows
-- ARGV[6]   the maximum number of jobs to look at
-- ARGV[7]   tenant (escaped), '' for any
-- ARGV[8]   kind, '' for any
-- ARGV[9]   which archived jobs: words of failures_wanted in message.lua, '' for any
-- ARGV[10]  '1': the lanes are merged; else one comes after the other, and the cursor
--           belongs to the first
-- ARGV[11..] the lanes, for waiting jobs
-- Returns   {done 1|0, at, id, index of its lane, looked at, then six for each job: id,
--           at_us, message without the payload, hg_base, hg_outcome, hg_error}
-- Bound: the jobs to look at, and 2 MiB of their messages.
-- Full memory: it runs, as it only reads.
-- Scheduled jobs and jobs to be retried come in the order of their time, jobs of lanes in
-- the order in which they will go, archived jobs newest first, pending and active jobs in the
-- order of their lists.
local state, at, last = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local wanted, most = tonumber(ARGV[5]), tonumber(ARGV[6])
local tenant_wanted, kind_wanted, failure_wanted = ARGV[7], ARGV[8], failures_wanted(ARGV[9])
local MAX_BYTES = 2097152 -- of messages
local newest = state == 'archived'
local merged = newest or ARGV[10] == '1'

-- before orders jobs as Redis does, whatever its locale.
local function before(a_us, a_id, b_us, b_id)
  if a_us ~= b_us then return (a_us < b_us) ~= newest end
  if a_id == b_id then return false end
  for k = 1, math.min(#a_id, #b_id) do
    local x, y = string.byte(a_id, k), string.byte(b_id, k)
    if x ~= y then return (x < y) ~= newest end
  end
  return (#a_id < #b_id) ~= newest
end

local function range(set, from, to)
  return read(newest and 'ZREVRANGE' or 'ZRANGE', set, from, to, 'WITHSCORES')
end

-- sources are sorted sets, each with a place in it: the one after the cursor. A binary
-- search finds it, as the cursor's own job may be gone.
local sources = {}
local function source(set, unit, number, begun, other)
  local low, high = 0, read('ZCARD', set)
  if high == 0 then return end
  if begun and at then
    while low < high do
      local middle = math.floor((low + high) / 2)
      local one = range(set, middle, middle)
      if before(at, last, tonumber(one[2]) * unit, one[1]) then high = middle else low = middle + 1 end
    end
  end
  sources[#sources + 1] = {set = set, unit = unit, number = number, other = other, rank = low, entries = {}, i = 1}
end

-- head returns the next job of a source; nil if none is left.
local PIECE = 50
local function head(s)
  if s.ended then return nil end
  if not s.entries[s.i] then
    s.entries, s.i = range(s.set, s.rank, s.rank + PIECE - 1), 1
    s.rank = s.rank + PIECE
    s.ended = #s.entries == 0
    if s.ended then return nil end
  end
  return s.entries[s.i], tonumber(s.entries[s.i + 1]) * s.unit
end

local looked, bytes, rows = 0, 0, 0
local results = {0, '', '', 0, 0}

local function full() return rows >= wanted or looked >= most or bytes >= MAX_BYTES end

local function visit(id, us)
  looked = looked + 1
  local f = read('HMGET', task_key(id), 'state', 'msg', 'group', 'hg_base', 'hg_outcome', 'hg_error', 'hg_slot', 'pending_since')
  if f[1] ~= state then return end -- it was deleted, or has just changed its state
  local msg = f[2] or ''
  bytes = bytes + #msg
  if kind_wanted ~= '' and message_kind(msg) ~= kind_wanted then return end
  if tenant_wanted ~= '' and message_tenant(msg, f[3] or '') ~= tenant_wanted then return end
  if failure_wanted and not failure_wanted(msg, f[5], f[6]) then return end
  if not us then
    us = slot_read(f[7])
    if us == 0 then us = math.floor(tonumber(f[8] or 0) / 1000) end
  end
  rows = rows + 1
  for _, value in ipairs({id, int(us), message_light(msg), f[4] or '', f[5] or '', f[6] or ''}) do results[#results + 1] = value end
end

if state == 'pending' or state == 'active' then
  -- asynq adds on the left: jobs that come meanwhile make some appear twice, but none is
  -- missed.
  local first = at or 0
  local ids = read('LRANGE', asynq .. state, int(first), int(first + most - 1))
  for _, id in ipairs(ids) do
    if full() then break end
    visit(id)
  end
  results[1] = looked == #ids and #ids < most and 1 or 0
  results[2] = int(first + looked)
else
  if state == 'aggregating' then
    for i = 11, #ARGV do source(asynq .. 'g:' .. ARGV[i], 1, i - 10, merged or i == 11) end
  elseif newest then
    source(asynq .. 'archived', 1000000, 0, true)
    source(headgate .. 'archive', 1, 0, true, asynq .. 'archived')
  else
    source(asynq .. state, 1000000, 0, true)
  end
  results[1] = 1
  while true do
    local best, id, us
    for _, s in ipairs(sources) do
      local this, this_us = head(s)
      if this and (not best or before(this_us, this, us, id)) then best, id, us = s, this, this_us end
      if best and not merged then break end
    end
    if not best then break end
    if full() then
      results[1] = 0
      break
    end
    best.i = best.i + 2
    results[2], results[3], results[4] = int(us), id, best.number
    -- A job that was retried and archived again belongs to asynq's archive; its entry in
    -- Headgate's is a leftover.
    if best.other and read('ZSCORE', best.other, id) then
      looked = looked + 1
    else
      visit(id, us)
    end
  end
end
results[5] = looked
return results
