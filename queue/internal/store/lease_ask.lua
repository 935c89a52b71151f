-- lease_ask.lua: what the buckets of leased limits have, and what they could use soon.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   shift_us: by how much the ledger's clock is ahead of this Redis's
-- ARGV[3]   horizon_us: until when from now jobs count that their own limits hold back
-- ARGV[4]   calendars as JSON, '' for none
-- Returns   1 if the queue has leased limits, else 0; in how many µs it may ask for more though dispatch announces nothing;
--           then for each {name, tenant, budget, pool, a, p, r, b, w, calendar, id, version, want, least, weight, firsts,
--           keep}, see Ask in internal/partition. What a bucket does not keep it never spends. keep has what
--           lease_keep returns; of a quota then 1 if all of it is used up, else 0. tenant is '' for all together; budget is
--           1 for a limit of several queues
-- Bound: it looks at 24 lanes and their own limits, at 8 lanes that each concurrency limit holds, and counts the others like
--           these; while a shared quota with a unit is used up, also at what the next jobs of 100 lanes take, and of 100 of
--           each concurrency limit; and of each limit per tenant at the buckets of 32 tenants.
-- Full memory: it runs (allow-oom), so that jobs go: it writes one small key for each limit, and a mark.
local now = clock()
local shift, horizon = tonumber(ARGV[2]), now + tonumber(ARGV[3])
local FEW = 8
-- Of a quota or a pool, no partition gets more at once than it could send until it asks again, so that others
-- get some of it, too.
local MANY = 500
local LANES = 100
-- Of each limit per tenant, so many buckets ask at once. One that has permits for no job gives them back
-- after IDLE µs, and one of which nothing is left anywhere asks again after LATER µs.
local TENANTS, IDLE, LATER = 32, 1000000, 1000000

-- own_admits returns how many jobs a lane's own limits admit within the horizon, about. Leased ones ask for
-- themselves, and a job may take nothing of them.
local function own_admits(own)
  local most = math.huge
  for _, entry in ipairs(own) do
    local spec = entry.spec
    if spec and not entry.asker then
      local n = limit_left(spec, bucket(entry, now), now)
      if KIND[spec.a] == 'rate' then n = n + math.ceil((horizon - now) * spec.r / spec.p) end
      most = math.min(most, n)
    end
  end
  return most
end

-- first_costs returns what the first job of a lane takes; nil if it has none.
local function first_costs(lane)
  local id = read('ZRANGE', lane_key(lane), 0, 0)[1]
  if not id then return nil end
  local costs = read('HMGET', task_key(id), 'hg_cost', 'hg_costs')
  return costs_read(costs[1], costs[2])
end

-- takes reports whether the first job of a lane takes some of one of these limits.
local function takes(lane, limits)
  if #limits == 0 then return false end
  local costs = first_costs(lane) or {}
  for _, entry in ipairs(limits) do
    if share_of(entry, costs) > 0 then return true end
  end
  return false
end

-- ready_lanes returns the first lanes that are ready and take nothing of limits that are used up, and how many there are,
-- about. Lanes that wait for those limits come first, because others have their turns meanwhile. Behind LANES of them,
-- the next ones are taken for some that do not wait.
local function ready_lanes(used)
  local key, free, seen = headgate .. 'ready', {}, 0
  if #used > 0 then
    seen = LANES
    for _, lane in ipairs(read('ZRANGE', key, 0, LANES - 1)) do
      attempt('lane ' .. lane, function()
        if not takes(lane, used) then free[#free + 1] = lane end
      end)
    end
  end
  local more, few = math.max(0, read('ZCARD', key) - seen), {}
  for i = 1, math.min(#free, FEW) do few[i] = free[i] end
  if #few == 0 and more > 0 then few = read('ZRANGE', key, seen, seen + FEW - 1) end
  return few, #free + more
end

-- could_go returns how many jobs only shared limits hold other than those that are used up, as far as the first lanes
-- tell, the weight of the tenants with backlog, and the first lane. A tenant whose next job starts before the virtual
-- time has none: it was held by its own limits.
local function could_go(used)
  local jobs, weight, known = 0, 0, {}
  local function each(lanes, all, fn)
    local first
    for _, lane in ipairs(lanes) do
      attempt('lane ' .. lane, function()
        if takes(lane, used) then return end
        first = first or lane
        fn(lane, lane_limits(lane, now), all / #lanes)
      end)
    end
    return first
  end
  local function count(lane, limits, times) jobs = jobs + math.min(lane_length(lane), own_admits(limits.own)) * times end
  local virtual = score_read(read('HGET', headgate .. 'vtime', '*'))
  local function weigh(limits, times)
    if not known[limits.tenant] then known[limits.tenant], weight = true, weight + limits.w * times end
  end
  local ready, all = ready_lanes(used)
  local first = each(ready, all, count)
  local behind = read('ZRANGEBYSCORE', headgate .. 'ready', score_write(virtual), '+inf', 'LIMIT', 0, FEW)
  each(behind, #behind < FEW and #behind or read('ZCOUNT', headgate .. 'ready', score_write(virtual), '+inf'), function(_, limits, times)
    weigh(limits, times)
  end)
  -- A tenant that just had its turn may wait for its own limit for a moment.
  local soon = read('ZRANGEBYSCORE', headgate .. 'waiting', '-inf', int(horizon), 'LIMIT', 0, FEW)
  local second = each(soon, #soon < FEW and #soon or read('ZCOUNT', headgate .. 'waiting', '-inf', int(horizon)), function(lane, limits, times)
    count(lane, limits, times)
    if score_read(read('HGET', headgate .. 'vtime', limits.tenant)) >= virtual then weigh(limits, times) end
  end)
  return jobs, weight, first or second
end

-- blocked_jobs returns how many jobs a concurrency limit holds, about, that take nothing of limits that are used up, and
-- the weight of their tenants. There are no more of them than the limit has calls: the others wait anyway.
local function blocked_jobs(entry, used)
  local jobs, weight, known = 0, 0, {}
  local most = #used > 0 and LANES or FEW -- others may be rare among those that take some
  local drawn = read('SRANDMEMBER', entry.blocked, most)
  local times = #drawn < most and 1 or read('SCARD', entry.blocked) / #drawn
  for _, lane in ipairs(drawn) do
    attempt('lane ' .. lane, function()
      if takes(lane, used) then return end
      local limits = lane_limits(lane, now)
      jobs = jobs + lane_length(lane) * times
      if not known[limits.tenant] then known[limits.tenant], weight = true, weight + limits.w * times end
    end)
  end
  return math.min(jobs, (entry.lease or entry).spec.b), weight
end

-- used_up reports whether nothing is left of a quota, here and anywhere else.
local function used_up(b)
  return b.kind == 'quota' and b.used == 1000000 and now + shift < b.ends and math.min(b.n, b.keep) <= b.spent
end

-- early reports whether a bucket has to wait until it can say what was used of a quota before it was leased: what was
-- given ahead is of the next window, and the ledger has this one.
local function early(b) return b.kind == 'quota' and b.version == 0 and b.from > now + shift end

-- next_ask is when a bucket of a partition without jobs may have something to ask.
local next_ask = math.ceil(now / 86400000000 + 1) * 86400000000 -- the same for a day
local function asks_at(at) next_ask = math.min(next_ask, math.max(now, at)) end

local function words(numbers)
  local all = {}
  for i, number in ipairs(numbers) do all[i] = int(number) end
  return all
end

-- set_shift notes by how much the ledger's clock is ahead. A bucket that never asked knows by this Redis's clock what was
-- used before its limit was leased.
local function set_shift(b)
  if not b.fresh and b.shift == shift then return end
  local by = b.version == 0 and shift - b.shift or 0
  for _, span in ipairs(b.spans or {}) do span.from, span.next, span.keep = span.from + by, span.next + by, span.keep + by end
  if b.from and b.ends > 0 then b.from, b.ends = b.from + by, b.ends + by end -- else nothing was used
  b.shift, b.dirty = shift, true
end

-- lease_asks returns what the bucket b of a limit asks for, to let `permits` go, `n` of them with the next call.
local function lease_asks(entry, tenant, b, permits, n, weight, firsts)
  local spec = entry.spec
  set_shift(b) -- also so that it keeps the name under which it asks
  local keep, have = lease_keep(b, now, permits, n)
  if b.kind == 'quota' then keep[3] = used_up(b) and 1 or 0 end
  return {
    entry.name, tenant, entry.budget and '1' or '0', spec.pool and '1' or '0', spec.a, int(spec.p), int(spec.r), int(spec.b), int(spec.w or 0), words(spec.c or {}),
    int(b.id), int(b.version), int(math.max(0, permits - have)), int(n), string.format('%.17g', weight), int(math.floor(firsts)), words(keep),
  }, have
end

-- first_cost returns what the first job of a lane takes of an entry, at least 1.
local function first_cost(entry, lane)
  local costs
  if lane then costs = first_costs(lane) end
  return costs and math.max(1, share_of(entry, costs)) or 1
end

-- tenant_asks adds what the buckets of single tenants ask for: those that lack permits, and those that have
-- some to give back. Those that came last are first, so that many that get nothing keep nobody waiting.
local function tenant_asks(asks)
  for _, limit in ipairs(config().limits) do
    local key = headgate .. 'leases:' .. limit.name
    local per_tenant = limit.spec.leased and #limit.per > 0
    local tenants = per_tenant and read('ZREVRANGEBYSCORE', key, int(now), '-inf', 'LIMIT', 0, TENANTS) or {}
    local later = per_tenant and read('ZRANGEBYSCORE', key, '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if later then asks_at(tonumber(later)) end
    if #tenants == TENANTS then asks_at(now) end
    for _, tenant in ipairs(tenants) do
      attempt('tenant ' .. tenant, function()
        local limits, jobs = lane_limits(tenant, now), waiting_jobs(tenant)
        for _, entry in ipairs(limits.own) do
          if entry.name == limit.name then
            local b = bucket(entry, now)
            limit_left(entry.spec, b, now)
            local lane, others = read('SRANDMEMBER', metered(entry)), {}
            local n, has, permits = first_cost(entry, lane), lease_over(b, now) and 0 or math.max(0, math.min(b.n, b.keep) - b.spent), 0
            for _, other in ipairs(limits.own) do
              -- Of two budgets, neither waits for the other one's lease.
              local waits = other.asker and not used_up(bucket(other, now))
              if other ~= entry and not waits then others[#others + 1] = other end
            end
            if jobs == 0 then
              permits = now - b.last < IDLE and has or 0
            elseif earliest_all(others, now, now, ONE) <= horizon then
              -- If no lane lacks permits, those that it has are for jobs that a shared limit holds, too.
              permits = lane and math.ceil(math.min(jobs, MANY, own_admits(others)) * n) or has
            end
            local one, have = lease_asks(entry, tenant, b, permits, n, 1, 0)
            if early(b) then asks_at(b.from - shift) else asks[#asks + 1] = one end
            if jobs == 0 and have == 0 then
              plan('ZREM', key, tenant)
            else
              local at = now + (used_up(b) and LATER or jobs == 0 and IDLE or 0)
              asks_at(at)
              plan('ZADD', key, int(at), tenant)
            end
          end
        end
      end)
    end
  end
end

-- demand_beside returns what jobs would take that take nothing of limits that are used up: how many could go, and how many
-- each concurrency limit holds; the weights of their tenants, and what the next one costs.
local function demand_beside(used, concurrency)
  local paused, first = read('EXISTS', asynq .. 'paused') == 1, nil
  local d = {jobs = 0, weight = 0, least = ONE, blocked = {}}
  if not paused then d.jobs, d.weight, first = could_go(used) end
  if first then d.least = first_costs(first) or ONE end
  d.all, d.all_weight = d.jobs, d.weight
  for i, entry in ipairs(concurrency) do
    local one = {jobs = 0, weight = 0}
    if not paused then one.jobs, one.weight = blocked_jobs(entry, used) end
    d.blocked[i], d.all, d.all_weight = one, d.all + one.jobs, d.all_weight + one.weight
  end
  return d
end

-- shared_asks returns what the bucket of a shared limit asks for; nothing if it has to wait. Jobs that wait for calls count
-- only for a quota: what they keep of a rate would pass.
local function shared_asks(entry, demand, of_no_use, typical, firsts)
  local b = bucket(entry, now)
  local n = math.max(1, share_of(entry, demand.least))
  local jobs, weight = demand.jobs, demand.weight
  if b.kind == 'quota' then jobs, weight = demand.all, demand.all_weight end
  if b.kind ~= 'lease' then jobs = math.min(jobs, MANY) end
  local permits = of_no_use and 0 or math.ceil(jobs * math.max(n, typical))
  local one = lease_asks(entry, '', b, permits, n, weight, firsts)
  if not early(b) then return one end
  asks_at(b.from - shift)
end

-- calls_asks returns what the lease of a concurrency limit asks for, with so many jobs that could have calls.
local function calls_asks(entry, jobs, weight)
  local b, held = bucket(entry.lease, now), read('ZCARD', entry.key)
  set_shift(b)
  local calls = held + math.ceil(math.min(jobs, MANY))
  local keep, have = calls_keep(b, held, calls)
  return {
    entry.name, '', '0', '0', 'cc', '1', '1', int(entry.lease.spec.b), '0', {}, int(b.id), int(b.version),
    int(math.max(0, calls - have)), '1', string.format('%.17g', weight), '0', words(keep),
  }
end

-- ask returns what all buckets ask for. A job may need several limits of which different partitions have the rest. So that
-- none waits for another one that waits for it, each takes them in one order: quotas with a unit, the others by their names,
-- budgets, calls as a lane takes them, and rates. A partition that lacks one gives back what comes after it, and keeps what
-- comes before it. But for jobs that lack a quota with a unit it keeps nothing, since jobs of other partitions may do
-- without that; and nothing of one budget for jobs that lack another.
local function ask()
  local asks = {}
  tenant_asks(asks)
  local known = read('HMGET', headgate .. 'vtime', '*typical', '*firsts', '*unit')
  local typical, firsts = math.max(1, score_read(known[1])), score_read(known[2])
  if known[3] and known[3] ~= 'permits' then typical, firsts = 1, 0 end -- they are times
  -- Jobs need not take anything of a limit with a unit, so those that do not go on when it is used up.
  local units, quotas, others, used, over = {}, {}, {}, {}, false
  for _, entry in ipairs(shared_limits(now)) do
    if entry.spec.leased then
      local b, list = bucket(entry, now), others
      limit_left(entry.spec, b, now)
      if b.kind == 'quota' and not entry.budget then list = entry.unit ~= '' and units or quotas end
      list[#list + 1] = entry
      if used_up(b) then
        if entry.unit ~= '' then used[#used + 1] = entry else over = true end
      end
    end
  end
  table.sort(quotas, function(a, b) return a.name < b.name end)
  local concurrency = lane_limits('', now).permits
  local all = demand_beside({}, concurrency)
  local demand = #used > 0 and demand_beside(used, concurrency) or all
  local function add(entry, of_no_use)
    local up = used_up(bucket(entry, now)) -- some of it may come back
    asks[#asks + 1] = shared_asks(entry, up and all or demand, of_no_use and not up, typical, firsts)
  end
  for _, entry in ipairs(units) do add(entry, false) end
  local lacks = false
  for _, entry in ipairs(quotas) do
    add(entry, lacks)
    lacks = lacks or used_up(bucket(entry, now))
  end
  for _, entry in ipairs(others) do add(entry, over) end
  local jobs, weight = demand.jobs, demand.weight
  for i = #concurrency, 1, -1 do -- lanes that wait for a later one have the earlier ones
    jobs, weight = jobs + demand.blocked[i].jobs, weight + demand.blocked[i].weight
    if concurrency[i].lease then asks[#asks + 1] = calls_asks(concurrency[i], over and 0 or jobs, weight) end
  end
  return asks
end

local leased, asks = false, {}
attempt('limits', function()
  set_calendars(ARGV[4])
  for _, limit in ipairs(config().limits) do leased = leased or limit.spec.leased end
end)
-- has_jobs reports whether jobs wait in lanes, or their calls are under way, which may give permits back.
local function has_jobs()
  return waiting_jobs('*') > 0 or read('LLEN', asynq .. 'pending') > 0 or read('LLEN', asynq .. 'active') > 0
end

-- note_idle makes dispatch announce the next lane, and lease_idle.lua answer until then.
local function note_idle()
  local vtime = headgate .. 'vtime'
  if read('HGET', vtime, '*idle') == int(next_ask) then return end
  plan('HSET', vtime, '*idle', int(next_ask))
  plan('PEXPIRE', vtime, 86400000)
end

local idle = false
attempt('limits', function()
  if not leased then return end
  asks = ask()
  idle = not has_jobs()
  if idle then note_idle() end
end)
if not idle then asks_at(now) end
return {leased and 1 or 0, int(next_ask - now), unpack(asks)}
