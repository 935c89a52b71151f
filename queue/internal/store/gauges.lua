-- gauges.lua: the numbers of a queue for metrics, in one call. It writes only faults, and
-- takes as long for 100,000 lanes as for a hundred.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   calendars as JSON, '' for none
-- ARGV[3]   how many lanes to draw at random
-- ARGV[4..] scopes of pauses to look up
-- Returns   {now, counts, limits, pauses}
--   counts  waiting, tenants, enqueued, moved, scheduled, retry, pending, active, archived,
--           completed, processed, failed, paused 1|0, oldest_us (since when the oldest
--           pending task is pending; 0: there is none), bytes (estimate), faults, stored,
--           stored_bytes, direct (calls without a job)
--   limits  for each {looked, used, capacity, adapted}: how many buckets were read, the
--           mean share of them that is used, 0 to 1, the capacity of a bucket, and the share
--           that is left of a rate that the provider lowered, 0 to 1; the last three as text.
--           A limit of the whole queue has one bucket; of other limits the buckets of the
--           drawn lanes are read.
--   pauses  for each scope that is paused: {scope, "until_us by reason"}
local now = clock()
save_buckets = nil -- buckets are only read
attempt('limits', function() set_calendars(ARGV[2]) end)

-- glance reads a key. If the key is damaged, it returns `none` and reports a fault.
local function glance(none, command, key, ...)
  local words, reply = {...}, none
  attempt(key, function() reply = read(command, key, unpack(words)) end)
  return reply
end
local function number(text) return tonumber(text or 0) or 0 end

-- bytes returns the memory that a key takes; 0 if Redis does not say.
local function bytes(key)
  local n = redis.pcall('MEMORY', 'USAGE', key)
  return type(n) == 'number' and n or 0
end

-- If the key of the faults holds something else, that is a fault, too.
local faults = redis.pcall('HLEN', headgate .. 'faults')
if type(faults) ~= 'number' then faults = 1 end

-- tasks_bytes returns the estimated memory of n tasks, from the mean of a few of them.
local function tasks_bytes(ids, n)
  local all = 0
  for _, id in ipairs(ids) do all = all + bytes(task_key(id)) end
  return all / #ids * n
end

local sums = {tenant_read(glance(nil, 'HGET', headgate .. 'tenants', '*') or nil)}
local waiting, tenants = sums[1] or 0, sums[5] or 0
local counts = {waiting, tenants, number(glance(0, 'HGET', headgate .. 'totals', 'enqueued')), glance(0, 'ZCARD', headgate .. 'archive')}
local size = 0
for _, state in ipairs({'scheduled', 'retry', 'pending', 'active', 'archived', 'completed'}) do
  local key, list = asynq .. state, state == 'pending' or state == 'active'
  local n = glance(0, list and 'LLEN' or 'ZCARD', key)
  counts[#counts + 1] = n
  if n > 0 then size = size + bytes(key) + tasks_bytes(glance({}, list and 'LRANGE' or 'ZRANGE', key, 0, 4), n) end
end
local oldest = glance(false, 'LINDEX', asynq .. 'pending', -1)
local since = oldest and number(glance(0, 'HGET', task_key(oldest), 'pending_since')) or 0
local drawn = glance({}, 'SRANDMEMBER', asynq .. 'groups', tonumber(ARGV[3]))
local heads, lists = {}, 0
for i = 1, math.min(#drawn, 5) do
  heads[#heads + 1] = glance({}, 'ZRANGE', lane_key(drawn[i]), 0, 0)[1]
  lists = lists + bytes(asynq .. 'g:' .. drawn[i])
end
if #heads > 0 then size = size + tasks_bytes(heads, waiting) + lists / #heads * glance(0, 'SCARD', asynq .. 'groups') end
for _, n in ipairs({
  number(glance(0, 'GET', asynq .. 'processed')), number(glance(0, 'GET', asynq .. 'failed')), read('EXISTS', asynq .. 'paused'),
  math.floor(since / 1000), math.floor(size), faults, sums[3] or 0, (sums[4] or 0) * SIZE_UNIT,
  number(glance(0, 'HGET', headgate .. 'totals', 'direct')),
}) do counts[#counts + 1] = n end

local limits, by_name = {}, {}
attempt('limits', function()
  for _, limit in ipairs(config().limits) do
    local seen = {whole = #limit.per == 0, looked = 0, used = 0, capacity = 0, adapted = 1, keys = {}}
    limits[#limits + 1], by_name[limit.name] = seen, seen
  end
end)
local function look(entry, whole)
  local seen = by_name[entry.name]
  if not entry.spec or not seen or seen.whole ~= whole or seen.keys[entry.key] then return end
  local spec, b = entry.spec, bucket(entry, now)
  local most, left = math.max(spec.b, 1), nil
  if entry.lease then
    -- The mean of all partitions is what they use together.
    most = entry.lease.spec.b
    left = most - read('ZCARD', entry.key) * (config().partitions or 1)
  elseif spec.leased then
    limit_left(spec, b, now)
    left = limit_reset(spec, b, now) > 0 and most * (1 - b.used / 1000000) or most
  else
    if spec.a == 'lb' then most = 1 end -- one goes at a time
    left = limit_left(spec, b, now)
  end
  seen.keys[entry.key], seen.looked, seen.capacity = true, seen.looked + 1, most
  seen.used = seen.used + (most - math.min(most, left)) / most
  if whole and entry.adaptive then seen.adapted = parts_now(entry.adapts, now) / adapting.parts end
end
local function look_all(lane, whole)
  local known = lane_limits(lane, now)
  for _, entry in ipairs(known.all) do look(entry, whole) end
  for _, entry in ipairs(known.permits) do look(entry, whole) end
end
attempt('limits', function() look_all('', true) end)
for _, lane in ipairs(drawn) do
  attempt('lane ' .. lane, function() look_all(lane, false) end)
end
for i, seen in ipairs(limits) do
  limits[i] = {
    seen.looked, string.format('%.6f', seen.used / math.max(seen.looked, 1)), string.format('%.0f', seen.capacity),
    string.format('%.6f', seen.adapted),
  }
end

local pauses = {}
for i, text in ipairs(glance({}, 'HMGET', headgate .. 'pauses', unpack(ARGV, 4))) do
  if text and (pause_ends_at(text) > now or hold_read(text)) then pauses[#pauses + 1] = {ARGV[3 + i], text} end
end
return {int(now), counts, limits, pauses}
