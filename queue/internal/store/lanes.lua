-- lanes.lua: lanes, the limits they stand under, and the order among them.
--
-- A library behind formats.lua. Keys, all under headgate:{queue}:
--
--   limits      hash: '*' the queue's limits as JSON, 't:'<tenant> what differs for one
--   overrides   hash: tenant -> JSON, what an operator changed for a time
--   b:<limit>:<values>   bucket of one limit (limits.lua)
--   permits:<limit>:<values>   permits of a concurrency limit, held by job ids. A limit
--               that becomes a rate, or a concurrency, under its old name finds a key
--               of its own
--   blocked:<limit>:<values>   lanes that wait for a permit of a concurrency limit
--   metered:<limit>:<values>   lanes that wait for a limit of which calls give back
--   waiting     sorted set: lane -> when its own limits next admit, µs
--   ready       sorted set: lane -> virtual start time, among lanes that only share limits hold
--   unserved    set of kinds, and unserved:<kind> set of lanes that were put aside: the
--               worker that looked at them has no handler for their kind
--   vtime       hash: tenant -> virtual finish time; '*' -> the queue's virtual time;
--               '*unit' -> what it counts; '*parts' -> what the last jobs added to it and
--               '*typical' -> what one usually adds; '*clock' -> when dispatch last looked, µs
--   pauses      hash: scope -> "until_us by reason", or of a hold (below)
--               "until_us tried length_us since_us probe reason"; scope: a tenant, '*' the
--               queue, k:KIND; of holds a:KIND the account of a kind, a:KIND;TENANT a
--               tenant's own, e:TENANT;ENDPOINT one receiver, h:ENDPOINT the same for all
--   endpoints:<tenant>   set of the lanes of its endpoints that hold jobs
--   unreachable:<endpoint>   set of tenants whose calls could not connect to it
--   pause_changes   sorted set: scope -> number of the latest change of its pause, by which
--               workers read what they do not know; '' -> the latest that was forgotten
--   pause_ends  sorted set: scope -> when its pause ends, or its resume or its hold may be
--               forgotten, µs
--   backlog     hash: tenant -> jobs in its lanes; '*' -> all
--   done        hash: tenant -> jobs done
--   totals      hash: 'enqueued' -> jobs accepted; 'pauses' and 'limits' -> changes of them;
--               more in record.lua
--   skips       hash: lane -> jobs that went since one of lower priority did
--   adapt       hash: bucket -> "parts since_us": to what a 429 lowered an adaptive limit
--   deadlines   sorted set: id -> deadline, µs, of jobs that have one
--   unique:<tenant>:<key>   id of the job that holds a key which frees itself. It expires
--               with its window, or KEY_MS after its job was to go and was last asked for
--   answers:<line>   "number answers": of the latest call of enqueue.lua in a line, for
--               repetitions of it
--
-- A lane that holds jobs stands in waiting, in ready, in unserved, or in a blocked
-- set. Its name is TENANT;attr=VALUE;... with escaped values, kind among them, and
-- says all that its limits need to know. Names of ours begin with '*', which no
-- escaped name holds.
--
-- A lane's scores are band * BAND + µs: 0 high, 1 normal, 2 low, and within a
-- band first in, first out.
local headgate = 'headgate:{' .. ARGV[1] .. '}:'
local PERMITS = headgate .. 'permits:'

local KEY_MS = 30 * 86400000

local ATTRIBUTES = {'endpoint', 'kind'} -- of a queue without limits

-- plain_attributes is config().attributes of a queue without caps, which would stand behind
-- them, from the text of its limits: it is found faster than the limits are decoded.
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
    local text = read('HGET', headgate .. 'limits', '*')
    conf = text and cjson.decode(text) or {limits = {}, attributes = ATTRIBUTES}
  end
  return conf
end

-- set_calendars takes what the caller made of time zones: the windows of calendar
-- limits, and under "w:TEXT" the openings of send windows.
-- All that is published has to be there, before anything is written: a caller
-- that does not know the newest limits reads them again.
local calendars = {}
local function set_calendars(text)
  if text ~= '' then calendars = cjson.decode(text) end
  for _, limit in ipairs(config().limits) do
    if limit.calendar and not calendars[limit.calendar] then error('STALE the calendar of limit ' .. limit.name .. ' was not passed', 0) end
  end
  for _, window in ipairs(config().windows or {}) do
    if not calendars['w:' .. window] then error('STALE the send window ' .. window .. ' was not passed', 0) end
  end
end

local function lane_name(tenant, attributes) return lane_of(config().attributes, tenant, attributes) end

local ANSWERS_MS = '60000' -- for so long the answers to a call of enqueue.lua are kept

local function answers_key(line) return headgate .. 'answers:' .. line end

-- share is what an entry takes of a job's costs; 0: the limit is none of its.
-- More than a limit ever holds (it was lowered after the job came) is all it holds.
local function share_of(entry, costs)
  local n = costs[entry.unit] or 0
  if entry.spec.b > 0 and n > entry.spec.b then return entry.spec.b end
  return n
end

local tenants, differ, overridden = {}, nil, nil
local function tenant_config(tenant, now)
  local known = tenants[tenant]
  if known then return known end
  known = {w = 1, l = {}, till = {}}
  if differ == nil then differ = read('HLEN', headgate .. 'limits') > 1 end
  if overridden == nil then overridden = read('EXISTS', headgate .. 'overrides') == 1 end
  -- Plain ifs: an imitation of Redis gets "x = a and f()" wrong where a is false.
  local text
  if differ then text = read('HGET', headgate .. 'limits', 't:' .. tenant) end
  if text then
    local own = cjson.decode(text)
    known.w = own.w or 1
    if type(known.w) ~= 'number' or not (known.w >= 0.001 and known.w <= 1000) then
      error('the weight of tenant ' .. tenant .. ' is not within 0.001 to 1000', 0)
    end
    known.l = own.l or {}
    known.window = own.window
  end
  local changes
  if overridden then changes = read('HGET', headgate .. 'overrides', tenant) end
  if changes then
    for name, change in pairs(cjson.decode(changes)) do
      -- Without a limit it does not fit the limits in force.
      if change.limit and (change['until'] == 0 or change['until'] > now) then
        known.l[name] = change.limit
        if change['until'] > 0 then known.till[name] = change['until'] end
      end
    end
  end
  tenants[tenant] = known
  return known
end

-- buckets are read once and written once per script, however many jobs pass.
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

-- An adaptive limit is lowered by a 429 to half of what it was, and comes back
-- by a sixteenth of the limit every five seconds, in 64ths.
local PARTS, STEP, STEP_US = 64, 4, 5000000
-- parts_now is the parts that are left of a limit, and when it is whole again.
local function parts_now(key, now)
  local parts, since = adapt_read(read('HGET', headgate .. 'adapt', key))
  -- What was lowered in the future was lowered before the clock was set back.
  if not parts or parts < 1 or since > now + 1000000 then return PARTS, 0 end
  local left = math.min(PARTS, parts + STEP * math.floor(math.max(0, now - since) / STEP_US))
  return left, since + math.ceil((PARTS - parts) / STEP) * STEP_US
end

local function adapted(spec, key, now)
  local parts, whole = parts_now(key, now)
  if parts == PARTS or spec.p > 2 ^ 40 or spec.r > 2 ^ 40 then return spec end
  local lower = {}
  for name, value in pairs(spec) do lower[name] = value end
  lower.code = nil
  if spec.w or spec.c then
    lower.b = math.max(1, math.floor(spec.b * parts / PARTS))
  else
    local p, r = spec.p * PARTS, spec.r * parts
    local common = gcd(p, r)
    lower.p, lower.r = p / common, r / common
  end
  return lower, whole
end

local function lower(entry, now)
  if not entry.adaptive then return end
  local parts = math.max(1, math.floor(parts_now(entry.key, now) / 2))
  plan('HSET', headgate .. 'adapt', entry.key, adapt_write(parts, now))
  -- By then every limit in it is whole again.
  plan('PEXPIRE', headgate .. 'adapt', int(2 * PARTS / STEP * STEP_US / 1000))
end

-- A send window is a limit of its own: a job goes only while it is open.
local function window_entry(text)
  local openings = calendars['w:' .. text]
  -- All that were published were passed (set_calendars).
  if not openings then error(tostring(text) .. ' is no send window of the queue', 0) end
  return {name = 'send window', openings = openings, unit = ''}
end

-- open_at is the first moment >= t in an opening. What lies behind the last one is
-- days away, and is asked again by then.
local function open_at(openings, t)
  for i = 1, #openings, 2 do
    if t < openings[i + 1] then return math.max(t, openings[i]) end
  end
  return t
end

local lanes = {}
-- lane_limits lists what holds a lane: `shared` limits of the whole queue,
-- `own` ones, and `permits` of concurrency limits, each with its bucket's name.
local function lane_limits(lane, now)
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
  for i, limit in ipairs(config().limits) do
    local spec = tenant.l[limit.name] or limit.spec
    local parts = {}
    local of_endpoint = false
    for j, attr in ipairs(limit.per) do
      parts[j] = values[attr] or ''
      of_endpoint = of_endpoint or attr == 'endpoint'
    end
    local suffix = limit.name .. ':' .. table.concat(parts, ';')
    local entry = {
      name = limit.name, spec = spec, key = headgate .. 'b:' .. suffix, unit = limit.unit or '', adaptive = limit.adaptive,
      -- till: when it may come to admit more than it says now.
      till = tenant.till[limit.name],
    }
    if spec.a == 'cc' then
      entry.key, entry.blocked = headgate .. 'permits:' .. suffix, headgate .. 'blocked:' .. suffix
      known.permits[#known.permits + 1] = entry
    else
      if limit.calendar then spec.c = calendars[limit.calendar] end
      if entry.adaptive then
        local whole
        entry.spec, whole = adapted(spec, entry.key, now)
        if whole then entry.till = math.min(whole, entry.till or whole) end
      end
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

-- job_limits are the limits of a job in a lane. A lane's name may not say its kind (a group
-- of asynq's own client): it is the job's.
local function job_limits(lane, msg, now)
  local limits = lane_limits(lane, now)
  if limits.kind then return limits end
  return lane_limits(lane_of_kind(lane, escape(message_kind(msg))), now)
end

-- shared_limits are those of the whole queue, which every lane stands under.
local function shared_limits(now) return lane_limits('', now).shared end

-- earliest_all is the first moment >= t at which every limit of the list admits
-- a job of these costs, and the entry that set it.
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
        if n > 0 then e = limit_earliest(entry.spec, bucket(entry, now), now, t, n) end
      end
      if e > t then t, binding, moved = e, entry, true end
    end
  until not moved
  return t, binding
end

-- commit_all takes the permits, and returns what has to be remembered of metered
-- limits, whose costs are corrected when the call was made: "limit=mark;...".
local function commit_all(list, now, t, costs)
  local marks = ''
  for _, entry in ipairs(list) do
    local n = entry.spec and share_of(entry, costs) or 0
    if n > 0 then
      local b = bucket(entry, now)
      b.detailed = b.detailed or entry.unit ~= ''
      limit_commit(entry.spec, b, now, t, n)
      if b.detailed then marks = marks_add(marks, entry.name, limit_mark(b)) end
    end
  end
  return marks
end

-- wake makes a lane with jobs known to the dispatcher. At once also puts a lane
-- forward that waits for its limits, for a job that brings its slot with it.
local function wake(lane, now, at_once)
  if read('ZSCORE', headgate .. 'ready', lane) then return end
  plan('ZADD', headgate .. 'waiting', at_once and 'LT' or 'NX', int(now), lane)
end

-- pick returns up to n lanes of a set that this script has not picked yet. They
-- leave the set.
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

-- A lane's moment was computed of what its bucket held: where calls give back it
-- may come sooner.
local function metered(entry) return headgate .. 'metered:' .. string.sub(entry.key, #headgate + 3) end

-- give_back returns n permits of a slot, as far as nothing that was given since
-- rests on them.
local function give_back(entry, now, slot, n, mark)
  local b = bucket(entry, now)
  if mark then b.detailed = true end
  if not limit_refund(entry.spec, b, now, slot, n, mark) then return end
  if entry.unit ~= '' then
    for _, lane in ipairs(pick(metered(entry), 10)) do wake(lane, now, true) end
  end
end

-- refund_all takes a slot back that was not used.
local function refund_all(list, now, slot, costs, marks)
  marks = marks_read(marks)
  for _, entry in ipairs(list) do
    local n = entry.spec and share_of(entry, costs) or 0
    if n > 0 then give_back(entry, now, slot, n, marks[entry.name]) end
  end
end

-- correct_all gives back or charges what a call used less or more than it was
-- given, of the metered limits that it names.
local function correct_all(list, now, slot, costs, actual, marks)
  marks = marks_read(marks)
  for _, entry in ipairs(list) do
    local used, given = entry.unit ~= '' and actual[entry.unit], share_of(entry, costs)
    if used and used < given then
      give_back(entry, now, slot, given - used, marks[entry.name])
    elseif used and used > given then
      limit_charge(entry.spec, bucket(entry, now), now, used - given)
    end
  end
end

-- pause_all stops the buckets of a list; of two pauses the longer one holds.
-- Afterwards they begin with one permit, and not with a burst.
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

-- blocked_by is the first concurrency limit of a lane with no permit left.
local function blocked_by(limits, now)
  for _, entry in ipairs(limits.permits) do
    if not permit_left(entry, now) then return entry end
  end
end

-- take_permits returns the names of the permits' sets, for the task to carry.
local function take_permits(limits, id, now)
  local keys = {}
  for i, entry in ipairs(limits.permits) do
    limit_commit(entry.spec, bucket(entry, now), now, now, 1, id)
    keys[i] = entry.key
  end
  return permits_write(keys)
end

-- free_permits gives back what a job held and lets one lane for each go on; it
-- returns how many. held is what take_permits returned.
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

-- backlog_add counts jobs of a tenant that wait. A tenant without any is forgotten.
local function backlog_add(tenant, n)
  count(headgate .. 'backlog', '*', n)
  count(headgate .. 'backlog', tenant, n, 'drop')
end

-- scopes_of lists the scopes of the pauses that concern a job.
local function scopes_of(tenant, kind, endpoint)
  kind = kind or ''
  local scopes = {'*', tenant, kind_scope(kind), account_scope(kind), account_scope(kind, tenant)}
  if endpoint then scopes[6], scopes[7] = endpoint_scope(tenant, endpoint), host_scope(endpoint) end
  return scopes
end

local planned_pauses = {} -- of this script: the text of each, false for one that ended

-- paused_until is when the last of the pauses ends that hold a job; 0: none does. It also
-- returns the holds that wait for a probe, and those that this job tries (id given), as
-- lists of {scope, hold}; nil for none.
local function paused_until(tenant, kind, endpoint, id)
  local latest, due, tries = 0, nil, nil
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
    end
  end
  return latest, due, tries
end

-- slot_ask asks what holds a job back: when the last of its pauses ends and which holds it
-- would try or tries (job.paused, job.due, job.tries; asked where pausing), the concurrency
-- limit without a permit for it (job.blocked), and when the limits of the list admit it and
-- which of them sets that (job.own, job.binding). A job holds its permits already, or has
-- permits nil.
local function slot_ask(job, limits, list, pausing, now)
  job.limits, job.paused, job.due, job.tries, job.blocked = limits, 0, nil, nil, nil
  if pausing then job.paused, job.due, job.tries = paused_until(limits.tenant, limits.kind, limits.endpoint, job.asks) end
  if not job.permits then job.blocked = blocked_by(limits, now) end
  job.own, job.binding = earliest_all(list, now, math.max(now, job.paused), job.costs)
end

-- slot_take takes what a job needs for a slot at t, where all its limits admit it: its costs
-- of all limits and a permit of each concurrency limit. The slot ends at `latest`, or never
-- where no limit holds the job. It returns the end, 0 for none, and the marks.
local function slot_take(job, t, latest, now)
  local limits, c, marks = job.limits, 0, ''
  if limits.all[1] then
    c = math.max(t, latest)
    marks = commit_all(limits.all, now, c, job.costs)
  end
  job.permits = job.permits or take_permits(limits, job.id, now)
  return c, marks
end

-- slot_fields adds to the words of an HSET what a task says of its slot.
local function slot_fields(fields, job, e, c, marks)
  local n = #fields
  fields[n + 1], fields[n + 2] = 'hg_slot', slot_write(e, c, job.position)
  if (job.permits or '') ~= '' then fields[n + 3], fields[n + 4] = 'hg_permits', job.permits end
  if (marks or '') ~= '' then fields[#fields + 1], fields[#fields + 2] = 'hg_marks', marks end
  return fields
end

-- note_pause numbers a change of a scope's pause, which is kept until a time.
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

-- For so long workers find the end of a pause by its number. One that was away for longer
-- reads all pauses.
local RESUME_KEPT_US = 3600000000

local function pause_end(scope)
  local planned = planned_pauses[scope]
  plan('HDEL', headgate .. 'pauses', scope)
  planned_pauses[scope] = false
  undo(function() planned_pauses[scope] = planned end)
  note_pause(scope, clock() + RESUME_KEPT_US)
end

-- pause stops a scope, and returns the pause in force; of two pauses the one that ends
-- later holds.
local function pause(scope, ends, by, reason)
  local known = pause_text(scope)
  if known and pause_ends_at(known) >= ends then return known end
  local text = pause_write(ends, by, reason)
  pause_set(scope, text, ends)
  return text
end

-- A hold that nobody tries, because no job of it waits, is forgotten after this.
local IDLE_US = 3600000000

local function hold_set(scope, hold)
  pause_set(scope, hold_write(hold), hold.ends + IDLE_US)
end

-- hold_begin holds a scope back because of a failure. probing: the failure is that of the
-- probe. Without named the length is a first one, and doubles with each probe that fails.
local GROWTH = 10
local function hold_begin(scope, length, named, probing, reason, now)
  local known
  local text = pause_text(scope)
  if text then known = hold_read(text) end
  if known and not probing then
    -- Calls that were under way when it began tell nothing new.
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

-- hold_untried lets the next job try, because this one was not called.
local function hold_untried(tries, now)
  for _, entry in ipairs(tries) do
    local scope, hold = entry[1], entry[2]
    hold_set(scope, {ends = now, length = hold.length, since = hold.since, probe = '-', reason = hold.reason})
  end
end

local function unique_key(unique) return headgate .. 'unique:' .. unique end

-- free_key gives a key back that a job holds until it ends; unique is false or nil where it
-- holds none.
local function free_key(id, unique)
  if unique and read('GET', unique_key(unique)) == id then plan('DEL', unique_key(unique)) end
end

-- audit_add keeps what an operator did. The latest is the first.
local MAX_AUDIT = 10000
local function audit_add(text)
  plan('LPUSH', headgate .. 'audit', text)
  plan('LTRIM', headgate .. 'audit', 0, MAX_AUDIT - 1)
end

-- Lanes that hold or held other than normal jobs stand in skips.
local mixed
local function has_bands()
  if mixed == nil then mixed = read('EXISTS', headgate .. 'skips') == 1 end
  return mixed
end

local function note_band(lane, position)
  if band_of(position) == 1 then return end
  plan('HSETNX', headgate .. 'skips', lane, 0)
  mixed = true
end

-- left is by how many jobs the plans of this script change a lane.
local left = {}
local function note_length(lane, n)
  left[lane] = (left[lane] or 0) + n
  undo(function() left[lane] = left[lane] - n end)
end

-- A plan that is dropped changes no lane.
local function keep_length(write)
  if write[1] == 'gather' and write[5] then left[write[5]] = left[write[5]] - write[6] end
end

-- lane_drop takes a job out of its lane, in which it stands.
local function lane_drop(lane, id)
  left[lane], on_drop = (left[lane] or 0) - 1, keep_length
  gather('ZREM', lane_key(lane), id, lane, -1)
end

-- lane_open puts a job into a lane that may have been empty.
local function lane_open(lane, id, position)
  lane_push(lane, id, position)
  if endpoint_of(lane) then plan('SADD', headgate .. 'endpoints:' .. tenant_of(lane), lane) end
end

-- lane_close forgets a lane that holds nothing any more. One that is left among
-- the blocked would be woken in place of another.
local function lane_close(lane, now)
  if lane_length(lane) + (left[lane] or 0) > 0 then return end
  lane_forget(lane)
  if endpoint_of(lane) then plan('SREM', headgate .. 'endpoints:' .. tenant_of(lane), lane) end
  plan('ZREM', headgate .. 'waiting', lane)
  plan('ZREM', headgate .. 'ready', lane)
  if has_bands() then plan('HDEL', headgate .. 'skips', lane) end
  for _, entry in ipairs(lane_limits(lane, now).permits) do plan('SREM', entry.blocked, lane) end
end

-- to_lane puts a job (back) into its lane.
local function to_lane(lane, id, position, now, at_once)
  plan('HSET', task_key(id), 'state', 'aggregating')
  lane_open(lane, id, position)
  note_length(lane, 1)
  note_band(lane, position)
  backlog_add(tenant_of(lane), 1)
  wake(lane, now, at_once)
end
