-- direct_end.lua: end a call that direct.lua gave a slot to, renew its permits, pause its tenant, or note what the
-- provider says of its limits.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   calendars as JSON, '' for none
-- ARGV[3..] id, tenant, attributes, cost, costs, permits, marks: those of direct.lua
-- ARGV[10]  slot_us: the latest moment of its slot
-- ARGV[11]  'cancel' it was not made | 'end' it was made | 'renew' | 'pause' the provider wants no calls
--           | 'hear' it says what it admits
-- ARGV[12]  for 'end': what it used of metered limits, "unit=n;...", or '' for what was taken;
--           for 'renew': lease_us; for 'pause': "length_us reason"; for 'hear': see hear in lanes.lua
-- ARGV[13]  layout by which the caller found the partition, see is_home
-- Returns   how many lanes were woken, whose jobs may go now; -1: the tenant is in another partition, and nothing
--           was done
-- Bound: the limits of one lane, of which each wakes at most ten lanes.
-- Full memory: it runs (allow-oom): it gives back what direct.lua took.
local now = clock()
local id, tenant, attributes, cost, more, permits, marks = unpack(ARGV, 3, 9)
local slot, what, actual = tonumber(ARGV[10]), ARGV[11], ARGV[12]
if not is_home(ARGV[13], tenant, read('HGET', headgate .. 'limits', 'layout') or '') then return -1 end

if what == 'renew' then
  for key in permits_read(permits) do
    if read('ZSCORE', key, id) then
      plan('ZADD', key, int(now + tonumber(actual)), id)
      plan('PEXPIRE', key, int(math.max(read('PTTL', key), math.ceil(tonumber(actual) / 1000) + 2000)))
    end
  end
  return 0
end

local function limits() return lane_limits(lane_name(tenant, attributes), now, true) end

if what == 'pause' then
  set_calendars(ARGV[2])
  local length, reason = string.match(actual, '^(%d+) (.*)$')
  local list, ends = {}, now + tonumber(length)
  for _, entry in ipairs(limits().own) do
    if entry.tenants then list[#list + 1] = entry end
  end
  -- As settle.lua does for the answer to a job's call.
  pause_all(list, now, ends, reason)
  pause(tenant, ends, 'provider', reason)
  return 0
end

if what == 'hear' then
  set_calendars(ARGV[2])
  attempt('limits', function() hear(limits(), now, actual) end)
  return 0
end

if (what == 'cancel' and slot > 0) or actual ~= '' then
  -- It counts as what it was given at its slot: that is taken back, and what it used counts instead.
  local lane, taken = lane_name(tenant, attributes), costs_taken(cost, more)
  event_of_slot(id, lane, DIRECT, slot, '-' .. taken)
  if what ~= 'cancel' then event_of_slot(id, lane, DIRECT, slot, cost .. ';' .. actual .. ';' .. more) end
  attempt('limits', function()
    set_calendars(ARGV[2])
    local list, costs = limits().all, costs_read(cost, more)
    if what == 'cancel' then
      refund_all(list, now, slot, costs, marks)
    else
      correct_all(list, now, slot, costs, costs_read('0', actual), marks)
    end
  end)
end
return free_permits(id, permits, now)
