-- explain.lua: what holds a lane now, and what jobs cost. It writes only faults.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   calendars as JSON, '' for none
-- ARGV[3]   lane to look at, '' for none
-- ARGV[4]   id of a job of the lane, '' for none
-- ARGV[5]   n: how many other lanes to sample for costs, at most 50. In all 48 of their jobs
--           are read, or two of each lane, evenly spread
-- ARGV[6]   since_us: when the lane was read
-- ARGV[7..] those lanes, then sliding window logs, at most 100: "key window_us most"
-- Returns   {now, backlog, version, place, limits, own costs, other costs, logs}
--   backlog how many jobs of the lane's tenant wait
--   version {pauses, limits}: the numbers of their changes, '' for none
--   place   {rank, score, length, band_end, lower_older, came}: how many jobs are ahead of
--           the job in its lane, its score, how many jobs the lane holds, how many of these
--           have its priority or a higher one, how many have a lower priority and have
--           waited longer, and how many came after since_us
--   limits  for each of the lane's limits: name, bucket, algorithm, next_us (when it admits
--           the job, or a job of cost 1)
--   costs   for each sampled job: hg_cost, hg_costs, as stored; for other lanes, a list each
--   logs    for each: {left, oldest_us}
local now = clock()
save_buckets = nil -- buckets are only read
set_calendars(ARGV[2])
local lane, id = ARGV[3], ARGV[4]

local function costs_of(list, ids)
  for _, one in ipairs(ids) do
    local task = read('HMGET', task_key(one), 'hg_cost', 'hg_costs')
    list[#list + 1] = task[1] or '1'
    list[#list + 1] = task[2] or ''
  end
end

local version = read('HMGET', headgate .. 'totals', 'pauses', 'limits')
local backlog = 0
local place, limits, own, others, logs = {}, {}, {}, {}, {}
if lane ~= '' then
  backlog = waiting_jobs(tenant_of(lane))
  local length = lane_length(lane)
  local rank, score = 0, 0
  if id ~= '' then
    rank = read('ZRANK', lane_key(lane), id) or -1
    score = tonumber(read('ZSCORE', lane_key(lane), id) or 0)
  end
  local band = band_of(score)
  local band_end = read('ZCOUNT', lane_key(lane), '-inf', '(' .. int((band + 1) * BAND))
  local lower_older = 0
  for other = 1, 2 do
    local from = other * BAND
    lower_older = lower_older + read('ZCOUNT', lane_key(lane), int(from), '(' .. int(from + score % BAND))
  end
  local came = 0
  for of = 0, 2 do
    came = came + read('ZCOUNT', lane_key(lane), int(of * BAND + tonumber(ARGV[6])), '(' .. int((of + 1) * BAND))
  end
  place = {rank, int(score), length, band_end, lower_older, came}

  -- Costs of up to 32 jobs, evenly spread over those ahead of the job.
  local until_rank = id ~= '' and math.max(rank, 0) or length - 1
  local stride = math.max(1, math.ceil((until_rank + 1) / 32))
  for at = 0, until_rank, stride do
    costs_of(own, read('ZRANGE', lane_key(lane), at, at))
  end

  local costs = costs_read()
  if id ~= '' then
    local task = read('HMGET', task_key(id), 'hg_cost', 'hg_costs')
    costs = costs_read(task[1], task[2])
  end
  local known = lane_limits(lane, now)
  for _, entry in ipairs(known.all) do
    if entry.spec then
      local n = share_of(entry, costs)
      local e = n > 0 and limit_earliest(entry.spec, bucket(entry, now), now, now, n) or now
      -- What is leased next is not known: the bucket's part of a rate comes evenly, and as long as some of
      -- a quota is left it is leased at once.
      if entry.spec.leased and e > now + entry.spec.ahead then
        local b = bucket(entry, now)
        if KIND[entry.spec.a] == 'rate' then
          e = now + math.ceil(n * entry.spec.p / entry.spec.r * 1000000 / math.max(b.share, 1))
        elseif b.used < 1000000 then
          e = now
        end
      end
      limits[#limits + 1] = {entry.name, entry.key, entry.spec.a, int(e)}
    end
  end
  for _, entry in ipairs(known.permits) do
    local e = limit_earliest(entry.spec, bucket(entry, now), now, now, 1)
    limits[#limits + 1] = {entry.name, entry.key, 'cc', int(e)}
  end
end

local n = math.min(tonumber(ARGV[5]), 50)
local each = math.max(2, math.floor(48 / math.max(n, 1)))
for i = 7, 6 + n do
  local list, length = {}, lane_length(ARGV[i])
  for at = 0, length - 1, math.max(1, math.ceil(length / each)) do
    costs_of(list, read('ZRANGE', lane_key(ARGV[i]), at, at))
  end
  others[#others + 1] = list
end

for i = 7 + n, math.min(#ARGV, 106 + n) do
  local key, w, b = string.match(ARGV[i], '^(.*) (%d+) (%d+)$')
  local spec = {a = 'sl', p = 1, r = 1, w = tonumber(w), b = tonumber(b), ahead = 0}
  local log = limit_open(spec, key, now)
  local left = limit_left(spec, log, now)
  local oldest = now
  if log.stored then oldest = tonumber(read('LINDEX', key, (log.gone or 0) + 1) or now) end
  logs[#logs + 1] = {left, int(oldest)}
end
return {int(now), backlog, {version[1] or '', version[2] or ''}, place, limits, own, others, logs}
