-- lanes.lua: lanes, the limits that apply to them, and the order among them.
--
-- A library behind formats.lua. Keys, all under headgate:{queue}:
--
--   limits      hash: '*' the queue's limits as JSON, 't:'<tenant> what differs for one tenant,
--               'epoch' "born_us empty_us": when they were first published in this Redis, and
--               since when their buckets count as empty, 0 for never; 'layout' what differs if
--               tenants are in other partitions, none for an undivided queue
--   overrides   hash: tenant -> JSON, what an operator changed for a time
--   b:<limit>:<values>   bucket of one limit (limits.lua)
--   permits:<limit>:<values>   permits of a concurrency limit, held by job ids, or by '*'<id> of calls without
--               a job, which lapse. A limit that
--               becomes a concurrency limit under its old name, or stops being one, so has
--               a new key
--   calls:<limit>:   how many calls at once are leased to a partition, as the bucket of a quota
--   blocked:<limit>:<values>   lanes that wait for a permit of a concurrency limit
--   metered:<limit>:<values>   lanes that wait for a limit to which calls, or other queues, give permits back
--               A value is that of the attribute of a lane, or of its tenant's group
--   leases:<limit>   sorted set: tenant -> when its bucket of a leased limit per tenant next asks for
--               permits, or gives them back, µs
--   waiting     sorted set: lane -> when its own limits next admit a job, µs
--   ready       sorted set: lane -> virtual start time, for lanes that only shared limits hold
--   owed        sorted set: lane in ready of a tenant with a guarantee -> from when on it goes before others, µs
--   guaranteed:<limit>:<tenant>   bucket of a guarantee, from which the tenant's part of a shared limit is taken
--   unserved    set of kinds, and unserved:<kind> set of lanes that were put aside, because
--               the worker that looked at them has no handler for their kind
--   vtime       hash: tenant -> virtual finish time; '*' -> the queue's virtual time;
--               '*unit' -> its unit; '*parts' -> what the last jobs added to it;
--               '*typical' -> what a job usually adds; '*clock' -> time of the last dispatch, µs;
--               '*firsts' -> of a partition with a shared limit: what went to tenants without backlog;
--               '*idle' -> if lease_ask saw that it has no jobs, when it may want a lease though dispatch
--               announces no lane, µs;
--               '*swept' -> cursor of the sweep, which deletes times that change nothing any more
--   pauses      hash: scope -> "until_us by reason", or for a hold (see formats.lua)
--               "until_us tried length_us since_us probe reason"; scope: a tenant, '*' the
--               queue, k:KIND; for holds a:KIND the account of a kind, a:KIND;TENANT a
--               tenant's own, e:TENANT;ENDPOINT one receiver, h:ENDPOINT the same for all;
--               m:TENANT while it moves to another partition
--   endpoints:<tenant>   set of the tenant's lanes with an endpoint that hold jobs
--   unreachable:<endpoint>   set of tenants whose calls could not connect to it
--   pause_changes   sorted set: scope -> number of the latest change of its pause, by which
--               workers read only what is new to them; '' -> the latest deleted number
--   pause_ends  sorted set: scope -> when its pause ends, or when its resume or hold may be
--               deleted, µs
--   tenants     hash: tenant -> how many jobs it has, see tenant_read in formats.lua; '*' -> all
--   totals      hash: 'enqueued' -> accepted jobs; 'direct' -> slots of calls without a job; 'pauses' and 'limits' -> number of their
--               changes; more in record.lua
--   skips       hash: lane -> jobs that went since one of lower priority did
--   adapt:<limit>:<values>   what is known of the rate that the provider admits, of a bucket, see formats.lua
--   deadlines   sorted set: id -> deadline, µs, for jobs that have one
--   unique:<tenant>:<key>   id of the job that holds a key. It expires with its window, or
--               KEY_MS after its job was due and the key was last asked for
--   answers:<line>   "number answers" of the latest call of enqueue.lua in a line, in case
--               the call is repeated
--   tick:<entry>   "JOB FIRED SKIPPED LAST" of a periodic job, see formats.lua
--   moves       hash: tenant -> its state while it moves to or from another partition of the queue,
--               see move.lua; '*' -> 'layout' of the limits: tenants that were not here do not come any more
--   leaving     hash: id -> "place score deadline" of a job on its way to another partition
--
-- A lane that holds jobs is in waiting, in ready, in unserved, or in a blocked set. Its
-- name is TENANT;attr=VALUE;... with escaped values, the kind among them, and contains
-- everything that selects its limits. Names of Headgate's own begin with '*', which no
-- escaped name contains.
--
-- A lane's scores are band * BAND + µs: 0 high, 1 normal, 2 low, and within a band first
-- in, first out.
local headgate = 'headgate:{' .. ARGV[1] .. '}:'
local PERMITS = headgate .. 'permits:'

local KEY_MS = 30 * 86400000

local ATTRIBUTES = {'endpoint', 'kind'} -- of a queue without limits

-- plain_attributes returns config().attributes of a queue without caps, from the text of
-- its limits, in which caps would come after them. This is faster than decoding the
-- limits. It returns nil if the text has another form.
local function plain_attributes(text)
  if not text then return ATTRIBUTES end
  local list = type(text) == 'string' and string.match(text, '^{"attributes":%[([%w_",]+)%],"limits":')
  if not list or list == '"endpoint","kind"' then return list and ATTRIBUTES end
  local names = {}
  for name in string.gmatch(list, '[%w_]+') do names[#names + 1] = name end
  return names
end

local conf
local function config()
  if not conf then
    local fields = read('HMGET', headgate .. 'limits', '*', 'epoch', 'layout')
    conf = fields[1] and cjson.decode(fields[1]) or {limits = {}, attributes = ATTRIBUTES}
    local born, empty = string.match(fields[2] or '', '^(%d+) (%d+)$')
    if not born or math.max(#born, #empty) > 16 then born, empty = 0, 0 end
    conf.born, lost_at, conf.layout = tonumber(born), tonumber(empty), fields[3] or ''
  end
  return conf
end

-- set_calendars takes what the caller computed from time zones: the windows of calendar
-- limits, and under "w:TEXT" the openings of send windows. All published ones must be
-- there before anything is written; if the caller does not know the newest limits, it
-- reads them again. It returns the kinds that the limits list, and when the limits were first published
-- in this Redis. known is what an earlier call returned: if the limits are gone since then, nothing may
-- go until they are published again, and then their buckets start empty.
local calendars = {}
local function set_calendars(text, known)
  if text ~= '' then calendars = cjson.decode(text) end
  for _, limit in ipairs(config().limits) do
    if limit.calendar and not calendars[limit.calendar] then error('STALE the calendar of limit ' .. limit.name .. ' was not passed', 0) end
  end
  for _, window in ipairs(config().windows or {}) do
    if not calendars['w:' .. window] then error('STALE the send window ' .. window .. ' was not passed', 0) end
  end
  local born = config().born
  if known and known > 0 and born ~= known then
    if born == 0 then error('they are gone from Redis: publish them again', 0) end
    if lost_at == 0 then
      -- They were published since by a program that did not know that they had been there.
      plan('HSET', headgate .. 'limits', 'epoch', format('%d %d', born, born))
      lost_at = born
      report('lost limits', 'what was used of the limits is lost from Redis, so they start empty')
    end
  end
  return config().kinds or {}, born
end

-- is_home returns whether a caller that knows a layout may add jobs of a tenant here. A tenant that moves has
-- two partitions, and takes jobs in the first until its own go, and in the second after they came.
-- latest is the layout of the queue; nil: that of its limits, which then have to be readable.
local function is_home(layout, tenant, latest)
  local sum, side = string.match(layout, '^(.-)([<>]?)$')
  if sum ~= (latest or config().layout) then return false end
  if side == '' then return true end
  local moves = read('HMGET', headgate .. 'moves', tenant, '*')
  if side == '>' then return moves[1] == 'here' end
  return moves[2] ~= sum and (not moves[1] or moves[1] == 'stop')
end

local function lane_name(tenant, attributes) return lane_of(config().attributes, tenant, attributes) end

local function record_key(entry) return headgate .. 'tick:' .. escape(entry) end

local ANSWERS_MS = '60000' -- how long the answers to a call of enqueue.lua are kept

local function answers_key(line) return headgate .. 'answers:' .. line end

-- share_of returns how many permits a job with these costs takes of an entry; 0: the
-- limit does not apply to it. If the limit was lowered after the job came, and never
-- holds that many, the job takes all that it holds.
local function share_of(entry, costs)
  local n = costs[entry.unit] or 0
  if entry.spec.b > 0 and n > entry.spec.b then return entry.spec.b end
  return n
end

local tenants, differ, overridden = {}, nil, nil
local function tenant_config(tenant, now)
  local known = tenants[tenant]
  if known then return known end
  known = {w = 1, l = {}, till = {}, changed = {}}
  if differ == nil then differ = read('HLEN', headgate .. 'limits') > 1 + (config().born > 0 and 1 or 0) + (config().layout ~= '' and 1 or 0) end
  if overridden == nil then overridden = read('EXISTS', headgate .. 'overrides') == 1 end
  -- Plain ifs: an imitation of Redis evaluates "x = a and f()" wrongly if a is false.
  local text
  if differ then text = read('HGET', headgate .. 'limits', 't:' .. tenant) end
  if text then
    local own = cjson.decode(text)
    known.w = own.w or 1
    if type(known.w) ~= 'number' or not (known.w >= 0.001 and known.w <= 1000) then
      error('the weight of tenant ' .. tenant .. ' is not within 0.001 to 1000', 0)
    end
    known.l, known.part, known.group = own.l or {}, own.g, own.group
    known.window = own.window
  end
  local changes
  if overridden then changes = read('HGET', headgate .. 'overrides', tenant) end
  if changes then
    for name, change in pairs(cjson.decode(changes)) do
      -- A change without a limit does not fit the limits in force.
      if change.limit and (change['until'] == 0 or change['until'] > now) then
        known.l[name], known.changed[name] = change.limit, true
        if change['until'] > 0 then known.till[name] = change['until'] end
      end
    end
  end
  tenants[tenant] = known
  return known
end

-- too_costly returns the answer {-3, limit, most, cost, unit} for a job that needs more permits than a limit
-- ever admits at once; nil otherwise. It reads only b of the limits, so it needs no calendars.
local function too_costly(tenant, cost, more, now, direct)
  if cost == '1' and more == '' then return nil end
  local own, costs, others = tenant_config(tenant, now), costs_read(cost, more), direct and 'jobs' or 'direct'
  for _, limit in ipairs(config().limits) do
    local spec, n = own.l[limit.name] or limit.spec, costs[limit.unit or ''] or 0
    if limit['for'] == others then n = 0 end
    for _, attr in ipairs(limit.per) do
      if attr == 'group' and own.group == nil then n = 0 end
    end
    if spec.a ~= 'cc' and spec.b > 0 and n > spec.b then return {-3, limit.name, spec.b, n, limit.unit or ''} end
  end
end

-- A script reads each bucket once and writes it once, however many jobs take permits.
local buckets = {}
local function save_buckets()
  for _, known in pairs(buckets) do limit_save(known, clock()) end
end

local function bucket(entry, now)
  local known = buckets[entry.key]
  if not known then
    known = limit_open(entry.spec, entry.key, now)
    buckets[entry.key], before_writes = known, save_buckets
  end
  return known
end

-- An adaptive limit looks for the rate that the provider admits, in 1024ths of its own. The first 429 halves it. Every
-- two seconds after that it takes half of the way up to the level that was refused, until that is near, and stays there
-- for a minute. Then it rises every five seconds, by a 64th at first and by twice as much each time. The next 429 names
-- the new level that is refused, and it goes back to the level two rises before, if that was not the whole: a level that
-- is a little too high uses up the provider's burst first, and is refused later.
-- TOLD_US: what a provider said counts for so long. saved: what this script has planned, by bucket.
local adapting = {parts = 1024, TOLD_US = 600000000, saved = {}}

-- level_at returns the level at which a limit is t µs after a 429, and when it changes next; and the level before it, if
-- a refusal now says that this one is too high.
local function level_at(a, t)
  local STEP_US, NEAR, STAYS_US, RISE, RISE_US = 2000000, 32, 60000000, 16, 5000000
  local gap, steps = a.high - a.low, 0
  while gap / 2 ^ steps > a.high / NEAR do steps = steps + 1 end
  local n = math.min(steps, math.floor(t / STEP_US))
  local level = math.floor(a.high - gap / 2 ^ n)
  local ends = steps * STEP_US + STAYS_US
  if t < ends then
    local before
    if n > 0 then
      before = math.floor(a.high - gap / 2 ^ (n - 1))
    elseif t >= STEP_US then
      before = math.floor(level * 15 / 16)
    end
    return level, n < steps and (n + 1) * STEP_US or ends, before
  end
  local rises = math.floor((t - ends) / RISE_US) + 1
  local function risen(times) return math.min(adapting.parts, level + RISE * (2 ^ times - 1)) end
  local before = risen(math.max(0, rises - 2))
  return risen(rises), ends + rises * RISE_US, before < adapting.parts and before
end

local function adapt_key(bucket) return headgate .. 'adapt:' .. string.sub(bucket, #headgate + 3) end

-- adapt_of returns what is known of what the provider admits; nil: nothing.
local function adapt_of(key, now)
  local a = adapting.saved[key] or adapt_read(read('GET', adapt_key(key)))
  -- A time in the future means that the clock was set back.
  if a and a.low >= 1 and a.high >= a.low and a.high <= adapting.parts and a.told >= 1 and math.max(a.since, a.at) <= now + 1000000 then return a end
end

-- parts_now returns how many parts of a limit are left, and when that may change.
local function parts_now(key, now)
  local a = adapt_of(key, now)
  if not a then return adapting.parts end
  local level, till = level_at(a, math.max(0, now - a.since))
  till = a.since + till
  if now < a.at + adapting.TOLD_US and a.told <= level then level, till = a.told, a.at + adapting.TOLD_US end
  return level, level < adapting.parts and till or nil
end

local function adapted(spec, key, now)
  local parts, till = parts_now(key, now)
  if parts == adapting.parts or spec.p > 2 ^ 36 or spec.r > 2 ^ 36 then return spec end
  local lower = {}
  for name, value in pairs(spec) do lower[name] = value end
  lower.code = nil
  if spec.w or spec.c then
    lower.b = math.max(1, math.floor(spec.b * parts / adapting.parts))
  else
    local p, r = spec.p * adapting.parts, spec.r * parts
    local common = gcd(p, r)
    lower.p, lower.r = p / common, r / common
  end
  return lower, till
end

local function adapt_save(key, a)
  adapting.saved[key] = a
  plan('SET', adapt_key(key), adapt_write(a), 'PX', 900000) -- by then the limit is whole again, and nothing is said any more
end

-- A ramp lets a bucket grow from its first call on, to so many times as much in each period as in the one before:
-- from ramp.from permits to ramp.to, after ramp.over. It stands still while more than ramp.hold of the latest calls
-- were rejected. All times are in µs. ramps returns the functions of that, which Redis creates only if there is one.
local growth
local function ramps()
  if growth then return growth end
  local KEPT_MS = 2592000000 -- a sender that was quiet for 30 days, or two periods, begins anew
  local RENEWED_US = 86400000000 -- how old a state is that a call keeps without being counted
  local TELL = 18000 -- what 20 calls leave in a state
  local KEEPS, ONE = 0.99, 1000
  local planned = {} -- the states that this script has planned, by bucket
  growth = {}

  local function key_of(bucket) return headgate .. 'ramp:' .. string.sub(bucket, #headgate + 3) end

  local function kept_ms(entry) return int(math.max(KEPT_MS, math.ceil(entry.ramp.period / 500))) end

  local function state_of(entry) return planned[entry.key] or ramp_read(read('GET', key_of(entry.key))) end

  local function save(entry, state)
    local was = planned[entry.key]
    planned[entry.key] = state
    plan('SET', key_of(entry.key), ramp_write(state), 'PX', kept_ms(entry))
    undo(function() planned[entry.key] = was end)
  end

  -- start_of returns the moment from which a bucket grows. While it stands still, the time since its latest call is
  -- added.
  local function start_of(ramp, state, now)
    if state.calls < TELL or state.rejected <= ramp.hold * state.calls then return state.start end
    return state.start + math.max(0, now - state.counted)
  end

  -- window_of returns when a limit's window began, and when it ends; now and nil if it has none.
  local function window_of(spec, now)
    local start, following
    if spec.a == 'fw' then start, following = window_at(spec, now) end
    return start or now, following
  end

  -- spec returns a limit as it is for a bucket now, and when it grows next.
  function growth.spec(entry, spec, now)
    local ramp, state = entry.ramp, state_of(entry)
    entry.kept_at = state and state.counted
    local at, following = window_of(spec, now)
    local age = 0
    if state then age = math.max(0, at - start_of(ramp, state, now)) end
    -- Windows of a calendar are not all of the same length.
    local n = math.floor(age / ramp.period + (following and 0.5 or 0))
    if n * ramp.period >= ramp.over then return spec end
    local till = following
    if state and not following then till = now + (n + 1) * ramp.period - age end
    local most = math.floor(ramp.from * (ramp.to / ramp.from) ^ (n * ramp.period / ramp.over) + 0.000001)
    local grown = {}
    for name, value in pairs(spec) do grown[name] = value end
    grown.code = nil
    if spec.w or spec.c then
      if spec.w then most = math.floor(most * spec.w / ramp.period) end
      grown.b = math.max(1, math.min(spec.b, most))
      return grown, till
    end
    local part = most * spec.p / (ramp.period * spec.r)
    if part >= 1 then return spec, till end
    local common = gcd(ramp.period, most)
    grown.p, grown.r = ramp.period / common, most / common
    if spec.a == 'tb' then grown.b = math.max(1, math.floor(spec.b * part)) end
    return grown, till
  end

  -- begin notes the first call of a bucket, and keeps the state of one that goes on, because the ends of direct calls are
  -- not counted.
  function growth.begin(entry, now)
    local kept_at = entry.kept_at
    entry.kept_at = now
    if kept_at then
      if now - kept_at > RENEWED_US then plan('PEXPIRE', key_of(entry.key), kept_ms(entry)) end
      return
    end
    save(entry, {start = window_of(entry.published, now), counted = now, calls = 0, rejected = 0})
  end

  -- count counts a call that has ended.
  function growth.count(entry, rejected, now)
    local state = state_of(entry)
    if not state then return end -- it was lost: the bucket begins with the next call
    save(entry, {
      start = start_of(entry.ramp, state, now), counted = now,
      calls = math.floor(state.calls * KEEPS) + ONE, rejected = math.floor(state.rejected * KEEPS) + (rejected and ONE or 0),
    })
  end

  return growth
end

-- lower notes that the provider refused a call at the level of now.
local function lower(entry, now)
  if not entry.adaptive or entry.whole then return end
  local a = adapt_of(entry.key, now) or {low = adapting.parts, high = adapting.parts, since = 0, told = adapting.parts, at = 0}
  if a.since == 0 and now < a.at + 1000000 then return end -- it has just said what it admits
  local level, _, _, before = parts_now(entry.key, now), level_at(a, math.max(0, now - a.since))
  if level == a.told and now < a.at + adapting.TOLD_US then
    before = math.floor(level * 15 / 16) -- the provider says what it admits: others use some of it, or its burst was used up
  elseif not before then
    before = math.floor(level / 2)
  end
  a.low, a.high, a.since = math.max(1, before), level, now
  adapt_save(entry.key, a)
end

-- hear notes what the provider says of its own limits: "unit limit window_us remaining of;...", limit 0 and remaining
-- -1 if it says nothing of these. of is 'account', then limits of the whole queue follow, or 'tenant' or 'endpoint', then
-- those per tenant or per endpoint do. It never raises a limit beyond its own rate, or what a bucket has. What remains
-- for a minute says nothing of a day, so it concerns only limits that are whole again within the window, or within a
-- minute if that is longer; of a limit that is a part of another one, the same part remains. "!1;" says that the receiver rejected what was sent, and "!0;" that it did not; neither,
-- that no limit has a ramp.
local function hear(limits, now, text)
  local function rate_of(spec)
    if spec.w or spec.c then return spec.b / (spec.w or 1) end
    return spec.r / spec.p
  end
  for unit, limit, window, left, of in string.gmatch(text, '([^ ;]*) (%d+) (%d+) (%-?%d+) (%l+);') do
    limit, window, left = tonumber(limit), tonumber(window), tonumber(left)
    for _, entry in ipairs(of == 'account' and limits.shared or limits.own) do
      local follows = entry.adaptive and entry.unit == unit and (of == 'account' or of == 'tenant' and entry.tenants or of == 'endpoint' and entry.endpoints)
      local spec = follows and entry.published
      if spec and not entry.whole and limit > 0 and window > 0 and not spec.c then
        local told = math.max(1, math.min(adapting.parts, math.floor(limit / window / rate_of(spec) * adapting.parts + 0.001)))
        local a = adapt_of(entry.key, now)
        if a and a.told == told then
          if now > a.at + 60000000 then
            a.at = now
            adapt_save(entry.key, a)
          end
        else -- what it refused was under another limit of its own
          adapt_save(entry.key, {low = adapting.parts, high = adapting.parts, since = 0, told = told, at = now})
        end
      end
      if spec and left >= 0 and (spec.c and spec.c[2] - spec.c[1] or size(spec)) <= math.max(window, 60000000) then
        local part = entry.whole and math.min(1, rate_of(spec) / rate_of(entry.whole)) or 1
        local b = bucket(entry, now)
        entry.spec = adapted(spec, entry.adapts, now) -- what remains is of the limit as it is now
        -- The call may be answered before the moment for which it is accounted.
        local more = math.floor(limit_left(entry.spec, b, math.max(now, b.last or 0))) - math.floor(left * part)
        if more > 0 then limit_charge(entry.spec, b, now, more) end
      end
    end
  end
  local rejected = string.match(text, '!([01]);')
  if not rejected then return end
  for _, entry in ipairs(limits.all) do
    if entry.ramp then ramps().count(entry, rejected == '1', now) end
  end
end

-- window_entry returns a send window as a limit: a job goes only while it is open.
local function window_entry(text)
  local openings = calendars['w:' .. text]
  -- set_calendars made sure that all published ones were passed.
  if not openings then error(tostring(text) .. ' is no send window of the queue', 0) end
  return {name = 'send window', openings = openings, unit = ''}
end

-- open_at returns the first moment >= t in an opening. After the last opening it returns
-- t: that is days away, and is computed again by then.
local function open_at(openings, t)
  for i = 1, #openings, 2 do
    if t < openings[i + 1] then return math.max(t, openings[i]) end
  end
  return t
end

-- leased_calls returns the concurrency limit of which a partition has a lease, as it is for the partition:
-- so many calls at once as were leased to it, and no more than its part, so that what is beyond that can be
-- given back as calls end. The lease is in a bucket of its own, as that of a quota of which nothing is used up.
local calls_leased = {}
local function leased_calls(spec, entry, now)
  local known = calls_leased[entry.name]
  if not known then
    local lease = {name = entry.name, spec = {a = 'fw', b = spec.b, ahead = 0, leased = true}, key = headgate .. 'calls:' .. entry.name .. ':'}
    local b = bucket(lease, now)
    known = {{a = 'cc', b = math.min(limit_left(lease.spec, b, now), b.share), l = spec.l}, lease}
    calls_leased[entry.name] = known
  end
  return known[1], known[2]
end

-- whole_of returns the adaptive limit of which another one is the part for one side, as account-jobs is of account
-- where a reserve leaves it. Both have the same level, else the part could be more than all that is left.
local function whole_of(part)
  if not part.adaptive or not part['for'] then return nil end
  local per = table.concat(part.per, ';')
  for _, whole in ipairs(config().limits) do
    if whole.adaptive and not whole['for'] and whole.name .. '-' .. part['for'] == part.name and table.concat(whole.per, ';') == per then
      return whole
    end
  end
end

local lanes = {}
-- lane_limits returns what can hold a lane: `shared` limits of the whole queue, its `own`
-- limits, and `permits` of concurrency limits, each with the name of its bucket. They are those for jobs, or
-- with direct = true those for calls that programs make themselves; a script asks for one of the two.
local function lane_limits(lane, now, direct)
  local known = lanes[lane]
  if known then return known end
  local values = lane_values(lane)
  local tenant = tenant_config(values.tenant, now)
  known = {
    tenant = values.tenant, w = tenant.w, kind = values.kind, endpoint = values.endpoint,
    shared = {}, own = {}, all = {}, permits = {},
  }
  local windows = config().send_windows or {}
  for _, text in ipairs({tenant.window or '', windows['*'] or '', known.kind and windows[known.kind] or ''}) do
    if text ~= '' then
      local entry = window_entry(text)
      known.own[#known.own + 1], known.all[#known.all + 1] = entry, entry
    end
  end
  local others = direct and 'jobs' or 'direct'
  for i, limit in ipairs(config().limits) do
    local spec = tenant.l[limit.name] or limit.spec
    local parts = {}
    local of_endpoint, applies = false, limit['for'] ~= others
    for j, attr in ipairs(limit.per) do
      parts[j] = values[attr] or ''
      if attr == 'group' then
        parts[j] = tenant.group or ''
        applies = applies and tenant.group ~= nil
      end
      of_endpoint = of_endpoint or attr == 'endpoint'
    end
    local of, whole = ':' .. table.concat(parts, ';'), whole_of(limit)
    local suffix = limit.name .. of
    local entry = {
      name = limit.name, spec = spec, key = headgate .. 'b:' .. suffix, unit = limit.unit or '', adaptive = limit.adaptive, published = spec,
      -- whole: the limit that this one is a part of; adapts: the bucket whose level it has
      whole = whole and (tenant.l[whole.name] or whole.spec), adapts = headgate .. 'b:' .. (whole or limit).name .. of,
      -- till: when it may begin to admit more than it says now.
      till = tenant.till[limit.name],
      budget = limit.queues ~= nil, askers = headgate .. 'leases:' .. limit.name,
      -- asker: the tenant whose bucket has only what was leased to it
      asker = spec.leased and #limit.per > 0 and values.tenant or nil,
    }
    if not applies then
      -- It is not asked.
    elseif spec.a == 'cc' then
      if spec.leased then entry.spec, entry.lease = leased_calls(spec, entry, now) end
      entry.key, entry.blocked = headgate .. 'permits:' .. suffix, headgate .. 'blocked:' .. suffix
      known.permits[#known.permits + 1] = entry
    else
      if limit.calendar then spec.c = calendars[limit.calendar] end
      local changes
      if entry.adaptive then
        entry.spec, changes = adapted(spec, entry.adapts, now)
      elseif limit.ramp and not tenant.changed[limit.name] then
        entry.ramp = limit.ramp
        entry.spec, changes = ramps().spec(entry, spec, now)
      end
      if changes then entry.till = math.min(changes, entry.till or changes) end
      known.all[#known.all + 1] = entry
      entry.tenants = #limit.per == 1 and limit.per[1] == 'tenant'
      entry.endpoints = of_endpoint
      local group = #limit.per == 0 and known.shared or known.own
      group[#group + 1] = entry
    end
  end
  lanes[lane] = known
  return known
end

-- job_limits returns the limits of a job in a lane. If the lane's name has no kind (a
-- group of asynq's own client), the kind is the job's.
local function job_limits(lane, msg, now)
  local limits = lane_limits(lane, now)
  if limits.kind then return limits end
  return lane_limits(lane_of_kind(lane, escape(message_kind(msg))), now)
end

-- shared_limits returns the limits of the whole queue, which apply to all lanes.
local function shared_limits(now) return lane_limits('', now).shared end

-- earliest_all returns the first moment >= t at which all limits of the list admit a job
-- with these costs, and the entry that determines it.
local function earliest_all(list, now, t, costs)
  local binding
  repeat
    local moved = false
    for _, entry in ipairs(list) do
      local e = t
      if entry.openings then
        e = open_at(entry.openings, t)
      else
        local n = share_of(entry, costs)
        if n > 0 then
          local b = bucket(entry, now)
          entry.bucket = b
          e = math.max(limit_earliest(entry.spec, b, now, t, n), b.kept_till or 0)
        end
      end
      if e > t then t, binding, moved = e, entry, true end
    end
  until not moved
  return t, binding
end

-- commit_all takes the permits. It returns the marks of limits to which they may come back although later slots
-- were given: "limit=mark;...". These are metered limits, whose costs are corrected after the call, and limits of
-- which a permit is worth at least a second, for slots that are missed.
local function commit_all(list, now, t, costs)
  local marks = ''
  for _, entry in ipairs(list) do
    local n = entry.spec and share_of(entry, costs) or 0
    if n > 0 then
      local b = bucket(entry, now)
      local spec = entry.spec
      b.detailed = b.detailed or entry.unit ~= '' or (spec.a == 'tb' and not spec.leased and spec.p >= 1e6 * spec.r)
      limit_commit(entry.spec, b, now, t, n)
      if entry.ramp then ramps().begin(entry, now) end
      if b.detailed then marks = marks_add(marks, entry.name, limit_mark(b)) end
    end
  end
  return marks
end

-- A guarantee is a part of what the queue's tenants share, in 10,000ths. Of each shared limit a bucket holds that part:
-- while it has permits, the tenant's lanes go before all others. guaranteed returns the functions of that; nil: no tenant has one.
local function guaranteed()
  if not config().guarantees then return nil end
  local PARTS, MOST = 10000, 2 ^ 36
  local known = {} -- by tenant
  local functions = {}

  -- part_of returns a part of a limit.
  local function part_of(whole, part)
    if KIND[whole.a] ~= 'rate' then
      return {a = 'fw', w = whole.w, c = whole.c, ahead = whole.ahead, b = math.max(1, math.floor(whole.b * part / PARTS))}
    end
    local p, r = whole.p * PARTS, whole.r * part
    if whole.p > MOST or whole.r > MOST then p, r = math.ceil(p / part), whole.r end -- as exact as numbers are
    local common = gcd(p, r)
    local burst = whole.a == 'tb' and math.floor(whole.b * part / PARTS) or 0
    -- With a burst of 1, it would lose the time until the shared limit next admits a job, each time.
    return {a = 'tb', p = p / common, r = r / common, b = math.max(2, burst), ahead = whole.ahead}
  end

  local function parts_of(limits, now)
    local list = known[limits.tenant]
    if list then return list end
    list = {}
    local part = tenant_config(limits.tenant, now).part
    attempt('guarantee of ' .. limits.tenant, function()
      if not part then return end
      if type(part) ~= 'number' or part < 1 or part > PARTS or part ~= math.floor(part) then error('it is not a part of ' .. PARTS, 0) end
      for _, entry in ipairs(limits.shared) do
        if not entry.spec.leased then
          local spec = part_of(entry.spec, part)
          local mine = {whole = entry, unit = entry.unit, spec = spec, key = headgate .. 'guaranteed:' .. entry.name .. ':' .. limits.tenant}
          limit_earliest(spec, bucket(mine, now), now, now, 1) -- raises if it is damaged
          -- Shared permits may come a little earlier than those of the part, such as by a rounding.
          mine.early = spec.r and math.floor(spec.p / spec.r / 256) or 0
          list[#list + 1] = mine
        end
      end
    end)
    known[limits.tenant] = list
    return list
  end

  local function due(entry, now, t) return limit_earliest(entry.spec, bucket(entry, now), now, t, 1) - entry.early end

  -- due returns from when on the jobs of a tenant go before those of others; math.huge: never.
  function functions.due(limits, now)
    local list, at = parts_of(limits, now), now
    if not list[1] then return math.huge end
    for _, entry in ipairs(list) do at = math.max(at, due(entry, now, at)) end
    return at
  end

  -- count takes what a job takes of the shared limits at t from the tenant's parts, if they have any left.
  function functions.count(limits, costs, t, now)
    for _, entry in ipairs(parts_of(limits, now)) do
      local n = share_of(entry.whole, costs)
      if n > 0 and due(entry, now, t) <= t then limit_commit(entry.spec, bucket(entry, now), now, t, n) end
    end
  end

  -- at_once returns what a tenant may get before others at one moment, as costs.
  function functions.at_once(limits, now)
    local costs = {[''] = 0}
    for _, entry in ipairs(parts_of(limits, now)) do costs[entry.unit] = math.max(costs[entry.unit] or 0, entry.spec.b) end
    return costs
  end

  return functions
end

-- wake makes a lane with jobs known to the dispatcher. at_once also moves a lane forward
-- that waits for its limits: it waits for what its first job needs, and has another first
-- job, or one that still has its slot.
local function wake(lane, now, at_once)
  if read('ZSCORE', headgate .. 'ready', lane) then return end
  plan('ZADD', headgate .. 'waiting', at_once and 'LT' or 'NX', int(now), lane)
end

-- pick returns up to n lanes of a set that this script has not picked yet, and removes
-- them from the set.
local picked = {}
local function pick(set, n)
  local gone = picked[set] or {n = 0}
  picked[set] = gone
  local found = {}
  for _, lane in ipairs(read('SRANDMEMBER', set, int(gone.n + n))) do
    if #found < n and not gone[lane] then
      gone[lane], gone.n = true, gone.n + 1
      found[#found + 1] = lane
      plan('SREM', set, lane)
      undo(function() gone[lane], gone.n = nil, gone.n - 1 end)
    end
  end
  return found
end

-- metered returns the key of the lanes that wait for an entry. Their moments were
-- computed from the content of the bucket, and may come sooner if calls give permits
-- back.
local function metered(entry) return headgate .. 'metered:' .. string.sub(entry.key, #headgate + 3) end

-- give_back gives n permits of a slot back, unless later slots depend on them. A job without a slot took none, or took
-- them for a call that may have been made.
local function give_back(entry, now, slot, n, mark)
  if slot <= 0 then return end
  local b = bucket(entry, now)
  if mark then b.detailed = true end
  if not limit_refund(entry.spec, b, now, slot, n, mark) then return end
  if entry.asker then plan('ZADD', entry.askers, int(now), entry.asker) end
  if entry.unit ~= '' then
    for _, lane in ipairs(pick(metered(entry), 10)) do wake(lane, now, true) end
  end
end

-- refund_all gives back the permits of a slot that was not used.
local function refund_all(list, now, slot, costs, marks)
  marks = marks_read(marks)
  for _, entry in ipairs(list) do
    local n = entry.spec and share_of(entry, costs) or 0
    if n > 0 then give_back(entry, now, slot, n, marks[entry.name]) end
  end
end

local slots_back = {} -- by job, the slots that this script has given back: a read does not show it yet

-- slot_back gives back the permits of the slot, with the end c, that a job in a lane has: it is not to use it any more.
-- What is damaged of them is not given back, and nothing is given back twice.
local function slot_back(id, list, now, c, position, costs)
  if slots_back[id] then return end
  local marks = read('HGET', task_key(id), 'hg_marks')
  plan('HSET', task_key(id), 'hg_slot', slot_write(0, 0, position))
  plan('HDEL', task_key(id), 'hg_marks')
  slots_back[id] = true
  attempt('job ' .. id, function() refund_all(list, now, c, costs, marks) end)
end

-- correct_all gives back or charges the difference between what a call was given and what
-- it used, for the metered limits that actual names.
local function correct_all(list, now, slot, costs, actual, marks)
  marks = marks_read(marks)
  for _, entry in ipairs(list) do
    local used = entry.spec and entry.unit ~= '' and actual[entry.unit] -- a send window has no spec
    local given = used and share_of(entry, costs)
    if used and used < given then
      give_back(entry, now, slot, given - used, marks[entry.name])
    elseif used and used > given then
      limit_charge(entry.spec, bucket(entry, now), now, used - given)
    end
  end
end

-- pause_all stops the buckets of a list; of two pauses the longer one holds. After the
-- pause they begin with one permit, not with a burst.
local function pause_all(list, now, ends, reason)
  for _, entry in ipairs(list) do
    if entry.spec then
      local b = bucket(entry, now)
      limit_left(entry.spec, b, now)
      if b.pause <= now then lower(entry, now) end
      if ends > b.pause then b.pause, b.why, b.mended = ends, reason, true end
    end
  end
end

local function permit_left(entry, now) return limit_earliest(entry.spec, bucket(entry, now), now, now, 1) <= now end

-- blocked_by returns the first concurrency limit of a lane without a free permit. Nobody gives back the permit of a
-- call without a job whose process died. lapses is when the first of these is free, and false if there is none: in the
-- bucket, and in the entry of the first lane that the script asks about, as one lane is enough to wait for it.
local function blocked_by(limits, now)
  for _, entry in ipairs(limits.permits) do
    if not permit_left(entry, now) then
      local b = bucket(entry, now)
      if b.lapses == nil then
        local first = read('ZRANGEBYSCORE', entry.key, '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
        b.lapses = first[1] ~= nil and is_direct(first[1]) and tonumber(first[2])
        entry.lapses = b.lapses
      end
      return entry
    end
  end
end

-- take_permits takes a permit of each concurrency limit. It returns the keys of the
-- permits, for the task to carry.
local function take_permits(limits, id, now)
  local keys = {}
  for i, entry in ipairs(limits.permits) do
    limit_commit(entry.spec, bucket(entry, now), now, now, 1, id)
    keys[i] = entry.key
  end
  return permits_write(keys)
end

-- free_permits gives back the permits that a job held, and wakes one lane for each. It
-- returns how many lanes it woke. held is what take_permits returned.
local function free_permits(id, held, now)
  local woken = 0
  if not held or held == '' then return woken end
  for key in permits_read(held) do
    attempt('permits ' .. key, function()
      if string.sub(key, 1, #PERMITS) ~= PERMITS then error('job ' .. id .. ' holds a permit of no limit', 0) end
      if not read('ZSCORE', key, id) then return end
      plan('ZREM', key, id)
      for _, lane in ipairs(pick(headgate .. 'blocked:' .. string.sub(key, #PERMITS + 1), 1)) do
        wake(lane, now, true)
        woken = woken + 1
      end
    end)
  end
  plan('HDEL', task_key(id), 'hg_permits')
  return woken
end

-- tenant_add adds to the counts of a tenant; see tenant_read.
local function tenant_add(tenant, waiting, done, jobs, units)
  record_text = record_text or function(field, text, sum, all)
    local old = {tenant_read(text)}
    if not old[1] then
      report('tenant ' .. field, string.format('%q', text) .. ' are no counts')
      old = {0, 0, 0, 0, 0}
    end
    local new, empty = {}, true
    for i = 1, 4 do
      new[i] = math.max(old[i] + (sum[i] or 0), 0)
      if field ~= '*' then all[i] = (all[i] or 0) + new[i] - old[i] end
      empty = empty and new[i] == 0
    end
    if field == '*' then
      new[5] = math.max(old[5] + (all[5] or 0), 0)
      return tenant_write(unpack(new))
    end
    if (old[1] > 0) ~= (new[1] > 0) then all[5] = (all[5] or 0) + (new[1] > 0 and 1 or -1) end
    return not empty and tenant_write(unpack(new)) or nil
  end
  plans[#plans + 1] = {'record', headgate .. 'tenants', tenant, waiting, done, jobs, units}
end

local function backlog_add(tenant, n) tenant_add(tenant, n, 0, 0, 0) end

local function done_add(tenant) tenant_add(tenant, 0, 1, 0, 0) end

-- stored_result counts the result that a job keeps.
local function stored_result(id, tenant, body, result)
  local digest, size = body_read(body)
  if result == '' or not size then return end
  local more = size_of(#result) - SIZE_EACH
  plan('HSET', task_key(id), 'hg_body', body_write(digest, size + more))
  tenant_add(tenant, 0, 0, 0, more)
end

-- waiting_jobs returns how many jobs wait, of a tenant or of '*'.
local function waiting_jobs(tenant) return tenant_read(read('HGET', headgate .. 'tenants', tenant)) or 0 end

-- scopes_of returns the scopes of the pauses that concern a job.
local function scopes_of(tenant, kind, endpoint)
  kind = kind or ''
  local scopes = {'*', tenant, kind_scope(kind), account_scope(kind), account_scope(kind, tenant), move_scope(tenant)}
  if endpoint then scopes[7], scopes[8] = endpoint_scope(tenant, endpoint), host_scope(endpoint) end
  return scopes
end

local planned_pauses = {} -- pauses that this script changes: their texts, or false if ended

-- paused_until returns when the last of the pauses that hold a job ends; 0: no pause
-- holds it. It also returns the holds that wait for a probe, and those whose probe the
-- job is (if id is given), as lists of {scope, hold}, nil for none; and whether its tenant moves.
local function paused_until(tenant, kind, endpoint, id)
  local latest, due, tries, moves = 0, nil, nil, false
  local scopes = scopes_of(tenant, kind, endpoint)
  for i, text in ipairs(read('HMGET', headgate .. 'pauses', unpack(scopes))) do
    if planned_pauses[scopes[i]] ~= nil then text = planned_pauses[scopes[i]] end
    local hold
    if text then hold = hold_read(text) end
    if hold and id and hold.probe == escape(id) then
      tries = tries or {}
      tries[#tries + 1] = {scopes[i], hold}
    elseif hold and hold.ends <= clock() then
      due = due or {}
      due[#due + 1] = {scopes[i], hold}
    elseif text then
      latest = math.max(latest, pause_ends_at(text))
      moves = moves or scopes[i] == move_scope(tenant)
    end
  end
  return latest, due, tries, moves
end

-- slot_ask computes what holds a job back: when the last of its pauses ends, when its lane
-- is looked at again if one holds it, and which holds it would probe or is probing
-- (job.paused, job.again, job.due, job.tries; only if pausing), the concurrency limit without a permit for it (job.blocked), and when the limits of the
-- list admit it and which one determines that (job.own, job.binding). job.permits is nil
-- unless the job holds its permits already.
--
-- Before the limits are asked, it gives back the permits of a slot that is over, with the end job.kept_c, if the job's
-- worker gave the job back before, at job.back: nobody used them, and they may be all that the job waits for.
local MOVE_US = 5000000
local function slot_ask(job, limits, list, pausing, now)
  job.limits, job.paused, job.due, job.tries, job.blocked = limits, 0, nil, nil, nil
  local moves
  if pausing then job.paused, job.due, job.tries, moves = paused_until(limits.tenant, limits.kind, limits.endpoint, job.asks) end
  -- Who moves a tenant plans its lanes again when it may go on, but may have died by then.
  job.again = moves and math.min(job.paused, now + MOVE_US) or job.paused
  if not job.permits then job.blocked = blocked_by(limits, now) end
  if (job.back or 0) > 0 and job.kept_c > 0 and job.kept_c <= now then
    earliest_all(limits.all, now, now, job.costs) -- raises if a bucket is damaged, before one has changed
    slot_back(job.id, limits.all, now, job.kept_c, job.kept_position, job.costs)
    job.kept_c = 0
  end
  job.own, job.binding = earliest_all(list, now, math.max(now, job.paused), job.costs)
end

-- slot_take takes what a job needs for a slot at t, when all its limits admit it: its
-- costs from all limits, and a permit of each concurrency limit. The slot ends at t or
-- `latest`, whichever is later, or never if no limit applies to the job. It returns the
-- end, 0 for none, and the marks.
local function slot_take(job, t, latest, now)
  local limits, c, marks = job.limits, 0, ''
  if limits.all[1] then
    c = math.max(t, latest)
    marks = commit_all(limits.all, now, c, job.costs)
  end
  job.permits = job.permits or take_permits(limits, job.id, now)
  return c, marks
end

-- slot_fields adds the fields of a task that describe its slot to the words of an HSET.
local function slot_fields(fields, job, e, c, marks)
  local n = #fields
  fields[n + 1], fields[n + 2] = 'hg_slot', slot_write(e, c, job.position)
  if (job.permits or '') ~= '' then fields[n + 3], fields[n + 4] = 'hg_permits', job.permits end
  if (marks or '') ~= '' then fields[#fields + 1], fields[#fields + 2] = 'hg_marks', marks end
  return fields
end

-- note_pause gives a number to a change of a scope's pause, and keeps it until
-- keep_until.
local pause_number
local function note_pause(scope, keep_until)
  if not pause_number then
    local latest = read('ZREVRANGE', headgate .. 'pause_changes', 0, 0, 'WITHSCORES')
    pause_number = math.max(tonumber(read('HGET', headgate .. 'totals', 'pauses') or 0) or 0, tonumber(latest[2] or 0))
  end
  pause_number = pause_number + 1
  plan('HSET', headgate .. 'totals', 'pauses', int(pause_number))
  plan('ZADD', headgate .. 'pause_changes', int(pause_number), scope)
  plan('ZADD', headgate .. 'pause_ends', int(keep_until), scope)
end

local function pause_text(scope)
  if planned_pauses[scope] ~= nil then return planned_pauses[scope] end
  return read('HGET', headgate .. 'pauses', scope)
end

local function pause_set(scope, text, keep_until)
  local planned = planned_pauses[scope]
  plan('HSET', headgate .. 'pauses', scope, text)
  planned_pauses[scope] = text
  undo(function() planned_pauses[scope] = planned end)
  note_pause(scope, keep_until)
end

-- How long workers can find the end of a pause by its number. A worker that was away for
-- longer reads all pauses.
local RESUME_KEPT_US = 3600000000

local function pause_end(scope)
  local planned = planned_pauses[scope]
  plan('HDEL', headgate .. 'pauses', scope)
  planned_pauses[scope] = false
  undo(function() planned_pauses[scope] = planned end)
  note_pause(scope, clock() + RESUME_KEPT_US)
end

-- pause stops a scope, and returns the pause in force: of two pauses the one that ends
-- later.
local function pause(scope, ends, by, reason)
  local known = pause_text(scope)
  if known and pause_ends_at(known) >= ends then return known end
  local text = pause_write(ends, by, reason)
  pause_set(scope, text, ends)
  return text
end

local function hold_set(scope, hold)
  local IDLE_US = 3600000000 -- how long it is kept after its end if no job waits that could probe it
  pause_set(scope, hold_write(hold), hold.ends + IDLE_US)
end

-- hold_begin holds a scope back because of a failure. probing: the failure is that of the
-- probe. named: the provider gave the length. Otherwise the length is that of the first
-- hold, and doubles with each probe that fails.
local GROWTH = 10
local function hold_begin(scope, length, named, probing, reason, now)
  local known
  local text = pause_text(scope)
  if text then known = hold_read(text) end
  if known and not probing then
    -- Calls that were in flight when the hold began say nothing new.
    if known.ends > now and (known.probe ~= '-' or not named or known.ends > now + length) then return end
    if not named then length = math.max(known.length, length) end
  elseif known and not named then
    length = math.min(math.max(2 * known.length, length), GROWTH * length)
  end
  hold_set(scope, {ends = now + length, length = length, since = known and known.since or now, probe = '-', reason = reason})
end

-- hold_try makes a job the probe of holds that wait for one. lease_us is how long its call
-- may take.
local function hold_try(due, id, lease_us, now)
  for _, entry in ipairs(due) do
    local scope, hold = entry[1], entry[2]
    hold_set(scope, {ends = now + lease_us, length = hold.length, since = hold.since, probe = escape(id), reason = hold.reason})
  end
end

-- hold_untried makes the next job the probe, because this one was not called.
local function hold_untried(tries, now)
  for _, entry in ipairs(tries) do
    local scope, hold = entry[1], entry[2]
    hold_set(scope, {ends = now, length = hold.length, since = hold.since, probe = '-', reason = hold.reason})
  end
end

local function unique_key(unique) return headgate .. 'unique:' .. unique end

-- free_key releases a key that a job holds until it ends. unique is false or nil if it
-- holds none.
local function free_key(id, unique)
  if unique and read('GET', unique_key(unique)) == id then plan('DEL', unique_key(unique)) end
end

-- audit_key returns the key of a share of the audit. Each API key has a share of its own, so that
-- none pushes out what others did; the command line and programs have one each.
local MAX_SHARE = 2000
local function audit_key(share) return headgate .. 'audit:' .. share end

-- audit_add records what an operator did. The latest entry of a share is the first.
local function audit_add(share, text)
  plan('SADD', headgate .. 'audit', share)
  plan('LPUSH', audit_key(share), text)
  plan('LTRIM', audit_key(share), 0, MAX_SHARE - 1)
end

-- The hash skips lists the lanes that hold or held jobs of high or low priority.
local mixed
local function has_bands()
  if mixed == nil then mixed = read('EXISTS', headgate .. 'skips') == 1 end
  return mixed
end

-- nothing_rare spares the commands that look for overrides and priorities, after one that found neither.
local function nothing_rare() overridden, mixed = false, false end

local function note_band(lane, position)
  if band_of(position) == 1 then return end
  plan('HSETNX', headgate .. 'skips', lane, 0)
  mixed = true
end

-- left is by how many jobs the plans of this script change the length of a lane.
local left = {}
local function note_length(lane, n)
  left[lane] = (left[lane] or 0) + n
  undo(function() left[lane] = left[lane] - n end)
end

-- A plan that is dropped does not change the length of its lane.
local function keep_length(write)
  if write[1] == 'gather' and write[5] then left[write[5]] = left[write[5]] - write[6] end
end

-- lane_drop removes a job from its lane. The job must be in it.
local function lane_drop(lane, id)
  left[lane], on_drop = (left[lane] or 0) - 1, keep_length
  gather('ZREM', lane_key(lane), id, lane, -1)
end

-- lane_open adds a job to a lane that may be empty.
local function lane_open(lane, id, position)
  lane_push(lane, id, position)
  if endpoint_of(lane) then plan('SADD', headgate .. 'endpoints:' .. tenant_of(lane), lane) end
end

-- lane_close removes an empty lane from all sets. A lane left in a blocked set would be woken in place of another. If
-- its last job left without a turn, it may have been woken for a permit, which another lane gets then. A lane that
-- jobs left without a turn is looked at if it is not empty: its first job may be another one.
local function lane_close(lane, now, without_turn)
  if lane_length(lane) + (left[lane] or 0) > 0 then
    if without_turn and left[lane] then wake(lane, now, true) end
    return
  end
  lane_forget(lane)
  if endpoint_of(lane) then plan('SREM', headgate .. 'endpoints:' .. tenant_of(lane), lane) end
  plan('ZREM', headgate .. 'waiting', lane)
  plan('ZREM', headgate .. 'ready', lane)
  if has_bands() then plan('HDEL', headgate .. 'skips', lane) end
  for _, entry in ipairs(lane_limits(lane, now).permits) do
    plan('SREM', entry.blocked, lane)
    if without_turn then
      attempt('permits ' .. entry.key, function()
        if not permit_left(entry, now) then return end
        for _, other in ipairs(pick(entry.blocked, 2)) do
          if other ~= lane then wake(other, now, true) end
        end
      end)
    end
  end
end

-- to_lane puts a job into its lane, or back into it. It returns whether the job is the first there: until then the
-- lane was empty, or waited for what another job needs.
local function to_lane(lane, id, position, now, at_once)
  local first = position < lane_first(lane)
  plan('HSET', task_key(id), 'state', 'aggregating')
  lane_open(lane, id, position)
  note_length(lane, 1)
  note_band(lane, position)
  backlog_add(tenant_of(lane), 1)
  wake(lane, now, at_once or first)
  return first
end
