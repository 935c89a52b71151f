-- direct.lua: give a slot to a call that its program makes itself, without a job.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   calendars as JSON, '' for none
-- ARGV[3]   near_us: how far ahead of now the slot may be
-- ARGV[4]   pickup_us: how long after its earliest moment the call may still begin
-- ARGV[5]   layout by which the caller found the partition, see is_home
-- ARGV[6..] id of the call, tenant, attributes, cost, costs (as for enqueue), and lease_us: how long it holds
--           permits of concurrency limits if it does not renew them; and when limits were first published, as an
--           earlier call returned it, 0 at first; and 1 if somebody observes the call
-- Returns   {'go', born_us, earliest_us, latest_us, now_us, permits, marks}; latest is 0 without a limit
--           {'no', born_us, after_us, again_us, reason, limit, line}: until its limits admit it, as far as they
--           know, and until the call is to ask again, both from now; 0: not known. reason is as for slot.lua.
--           Calls of the same line wait for the same bucket; '': for none
--           born_us is when the limits were first published
--           If somebody observes the call, both have {limits, limit, quota, left, reset_us} behind them: the names of
--           the limits that were asked, and the state of one of them, as throttle.Decision has it
--           {'never', limit, most, cost, unit}: the limit never admits that many permits
--           {'leased', limit}: the limit gives leases to the queue for its jobs alone
--           {'moved'}: the tenant is in another partition
-- Bound: the limits of one lane.
-- Full memory: it runs (allow-oom), so that calls can go, as dispatch.lua does: it writes buckets, and permits
-- that lapse.
local now = clock()
local near, latest, layout = now + tonumber(ARGV[3]), now + tonumber(ARGV[4]), ARGV[5]
local id, tenant, attributes, cost, more = unpack(ARGV, 6, 10)
local lease, born = tonumber(ARGV[11]), '0'

-- leased returns a limit of the list that has only what was leased to it.
local function leased(list)
  for _, entry in ipairs(list) do
    if entry.lease or (entry.spec and entry.spec.leased) then return entry.name end
  end
end

-- hold_permits is take_permits for a call that no worker would recover: its permits lapse.
local function hold_permits(list)
  local keys = {}
  for i, entry in ipairs(list) do
    keys[i] = entry.key
    plan('ZREMRANGEBYSCORE', entry.key, '-inf', int(now))
    plan('ZADD', entry.key, int(now + lease), id)
    local ms = math.ceil(lease / 1000) + 2000
    if read('PTTL', entry.key) < ms then plan('PEXPIRE', entry.key, int(ms)) end
  end
  return permits_write(keys)
end

-- early reports whether the slot of a call would come long after the next one of a limit of the whole queue. In
-- between nobody could go, as its slots are given in the order of time; so a call that another limit holds waits for
-- that first.
local function early(limits, call)
  if call.own <= latest then return false end
  for _, entry in ipairs(limits.shared) do
    local n = entry.spec.a == 'lb' and share_of(entry, call.costs) or 0
    if n > 0 and limit_earliest(entry.spec, bucket(entry, now), now, latest, n) < call.own - (latest - now) then return true end
  end
  return false
end

-- no is the answer to a call that may not go before `call.own`, and asks again `ahead` of that.
local LATER = 250000 -- when a call asks again that is held without an end
local ENDLESS = 9e15
local function no(call, ahead)
  local after = math.max(call.own - now, 1)
  if call.paused >= ENDLESS then return {'no', born, 0, LATER, 'pause', '', ''} end
  local again = int(math.max(after - ahead, 1000))
  -- Without a limit that holds it longer, it waits for the end of the pause.
  if not call.binding or call.paused > near then return {'no', born, int(after), again, 'pause', '', ''} end
  if not call.binding.spec then return {'no', born, int(after), again, 'window', '', ''} end
  return {'no', born, int(after), again, 'limit', call.binding.name, call.binding.key}
end

local limits, call -- once they are known

local function answer()
  if not is_home(layout, tenant) then return {'moved'} end
  local _
  _, born = set_calendars(ARGV[2], tonumber(ARGV[12]))
  born = int(born)
  local never = too_costly(tenant, cost, more, now, true)
  if never then return {'never', unpack(never, 2, 5)} end
  limits = lane_limits(lane_name(tenant, attributes), now, true)
  call = {costs = costs_read(cost, more)}
  local lessee = leased(limits.all) or leased(limits.permits)
  if lessee then return {'leased', lessee} end
  if read('EXISTS', asynq .. 'paused') == 1 then return {'no', born, 0, LATER, 'pause', '', ''} end
  slot_ask(call, limits, limits.all, true, now)
  if call.blocked then return {'no', born, 0, 0, 'concurrency', call.blocked.name, call.blocked.key} end
  if call.own > near then return no(call, near - now) end
  if early(limits, call) then return no(call, latest - now) end
  local c, marks = 0, ''
  if limits.all[1] then
    c = math.max(call.own, latest)
    marks = commit_all(limits.all, now, c, call.costs)
  end
  local permits = hold_permits(limits.permits)
  count(headgate .. 'totals', 'direct', 1)
  event_of_slot(id, lane_name(tenant, attributes), DIRECT, c > 0 and c or now, costs_taken(cost, more))
  return {'go', born, int(call.own), int(c), int(now), permits, marks}
end

-- observed returns what is observed of an answer. The limit is the one that held the call back or, if it goes, the one
-- with the fewest permits left; '' for none. What is left is counted at the moment for which calls are accounted.
local function observed(reply)
  local goes = reply[1] == 'go'
  local at = goes and math.max(tonumber(reply[4]), latest) or latest
  local names, limit, quota, left, reset = {}, '', 0, 0, 0
  -- look adds a limit. This call has n permits of it that its bucket does not show yet.
  local function look(entry, n)
    names[#names + 1] = entry.name
    if not goes and entry.name ~= reply[6] then return end
    local spec, b = entry.spec, bucket(entry, now)
    local rest = math.max(limit_left(spec, b, at) - n, 0)
    if limit ~= '' and rest >= left then return end
    limit, left, reset = entry.name, rest, math.max(limit_reset(spec, b, now), n * lease)
    quota = spec.a == 'lb' and 1 or math.max(spec.b, 1) -- of a leaky bucket one goes at a time
  end
  for _, entry in ipairs(limits.all) do
    if entry.spec and share_of(entry, call.costs) > 0 then look(entry, 0) end
  end
  for _, entry in ipairs(limits.permits) do look(entry, goes and 1 or 0) end
  return {names, limit, int(quota), int(left), int(reset)}
end

local reply = answer()
if ARGV[13] and (reply[1] == 'go' or reply[1] == 'no') then reply[#reply + 1] = observed(reply) end
return reply
