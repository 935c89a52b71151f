-- direct_end.lua: end a call that direct.lua gave a slot to, or renew its permits.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   calendars as JSON, '' for none
-- ARGV[3..] id, tenant, attributes, cost, costs, permits, marks: those of direct.lua
-- ARGV[10]  slot_us: the latest moment of its slot
-- ARGV[11]  'cancel' it was not made | 'end' it was made | 'renew'
-- ARGV[12]  for 'end': what it used of metered limits, "unit=n;...", or '' for what was taken;
--           for 'renew': lease_us
-- Returns   how many lanes were woken, whose jobs may go now
-- Bound: the limits of one lane, of which each wakes at most ten lanes.
-- Full memory: it runs (allow-oom): it gives back what direct.lua took.
local now = clock()
local id, tenant, attributes, cost, more, permits, marks = unpack(ARGV, 3, 9)
local slot, what, actual = tonumber(ARGV[10]), ARGV[11], ARGV[12]

if what == 'renew' then
  for key in permits_read(permits) do
    if read('ZSCORE', key, id) then
      plan('ZADD', key, int(now + tonumber(actual)), id)
      plan('PEXPIRE', key, int(math.max(read('PTTL', key), math.ceil(tonumber(actual) / 1000) + 2000)))
    end
  end
  return 0
end

if (what == 'cancel' and slot > 0) or actual ~= '' then
  attempt('limits', function()
    set_calendars(ARGV[2])
    local list, costs = lane_limits(lane_name(tenant, attributes), now, true).all, costs_read(cost, more)
    if what == 'cancel' then
      refund_all(list, now, slot, costs, marks)
    else
      correct_all(list, now, slot, costs, costs_read('0', actual), marks)
    end
  end)
end
return free_permits(id, permits, now)
