-- lease_ask.lua: what the buckets of leased limits have, and what they could use soon.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   shift_us: by how much the ledger's clock is ahead of this Redis's
-- ARGV[3]   horizon_us: until when from now jobs count that their own limits hold back
-- Returns   for each leased limit {name, a, p, r, b, id, version, want, least, weight, keep}, see
--           Ask in internal/partition. What a bucket does not keep it never spends. keep has
--           four numbers for each span: where it begins and ends, each in µs and units
-- Bound: it looks at 16 lanes and their own limits, and counts the others like these.
-- Full memory: it runs (allow-oom), so that jobs go: it writes one small key for each limit.
local now = clock()
local shift, horizon = tonumber(ARGV[2]), now + tonumber(ARGV[3])
local FEW = 8

-- own_admits returns how many jobs a lane's own limits admit within the horizon, about.
local function own_admits(limits)
  local most = math.huge
  for _, entry in ipairs(limits.own) do
    local spec = entry.spec
    if spec then
      local n = limit_left(spec, bucket(entry, now), now)
      if KIND[spec.a] == 'rate' then n = n + math.ceil((horizon - now) * spec.r / spec.p) end
      most = math.min(most, n)
    end
  end
  return most
end

-- could_go returns how many jobs only shared limits hold, as far as the first lanes tell, the weight of
-- their tenants, and the first lane.
local function could_go()
  if read('EXISTS', asynq .. 'paused') == 1 then return 0, 0 end
  local jobs, weight, known = 0, 0, {}
  local function count(lanes, all)
    for _, lane in ipairs(lanes) do
      attempt('lane ' .. lane, function()
        local limits = lane_limits(lane, now)
        jobs = jobs + math.min(lane_length(lane), own_admits(limits)) * all / #lanes
        if not known[limits.tenant] then known[limits.tenant], weight = true, weight + limits.w * all / #lanes end
      end)
    end
    return lanes[1]
  end
  local ready = read('ZRANGE', headgate .. 'ready', 0, FEW - 1)
  local first = count(ready, #ready < FEW and #ready or read('ZCARD', headgate .. 'ready'))
  local soon = read('ZRANGEBYSCORE', headgate .. 'waiting', '-inf', int(horizon), 'LIMIT', 0, FEW)
  local second = count(soon, #soon < FEW and #soon or read('ZCOUNT', headgate .. 'waiting', '-inf', int(horizon)))
  return jobs, weight, first or second
end

local function ask()
  local jobs, weight, first = could_go()
  local least, typical = ONE, math.max(1, score_read(read('HGET', headgate .. 'vtime', '*typical')))
  if first then
    local id = read('ZRANGE', lane_key(first), 0, 0)[1]
    if id then
      local costs = read('HMGET', task_key(id), 'hg_cost', 'hg_costs')
      least = costs_read(costs[1], costs[2])
    end
  end
  local asks = {}
  for _, entry in ipairs(shared_limits(now)) do
    local spec = entry.spec
    if spec.leased then
      local b = bucket(entry, now)
      limit_left(spec, b, now)
      -- It keeps the name under which it asks.
      if b.fresh or b.shift ~= shift then b.shift, b.dirty = shift, true end
      local n = math.max(1, share_of(entry, least))
      local permits = math.ceil(jobs * math.max(n, typical))
      local keep, have = lease_keep(b, now, permits)
      local words = {}
      for i, number in ipairs(keep) do words[i] = int(number) end
      asks[#asks + 1] = {
        entry.name, spec.a, int(spec.p), int(spec.r), int(spec.b), int(b.id), int(b.version),
        int(math.max(0, permits - have)), int(n), string.format('%.17g', weight), words,
      }
    end
  end
  return asks
end

local asks = {}
attempt('limits', function() asks = ask() end)
return asks
