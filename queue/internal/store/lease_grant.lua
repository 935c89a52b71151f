-- lease_grant.lua: give the bucket of a leased limit what the ledger answered.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   limit
-- ARGV[3]   id of the holder that asked: the bucket may be another one since
-- ARGV[4]   version of its account
-- ARGV[5]   the part of the limit that it gets, in millionths; of a concurrency limit, the calls
-- ARGV[6]   how much of what can be leased is leased, the same
-- ARGV[7]   tenant whose bucket it is, escaped; '' for that of all
-- ARGV[8..] what it has, as lease_accept takes it
-- Returns   1, or 0 if there is no such bucket
-- Full memory: it runs (allow-oom), so that jobs go: it writes one small key.
local now, done = clock(), 0
local LANES = 100 -- that a grant wakes; others of the tenant are soon looked at anyway

-- grant gives a bucket what was answered, if it is the one that asked.
local function grant(b)
  if b.id ~= tonumber(ARGV[3]) then return end
  local numbers = {}
  for i = 8, #ARGV do numbers[#numbers + 1] = tonumber(ARGV[i]) end
  announcement = '' -- jobs may go on
  lease_accept(b, tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), numbers)
  done = 1
end

attempt('limits', function()
  for _, entry in ipairs(ARGV[7] == '' and shared_limits(now) or lane_limits(ARGV[7], now).own) do
    if entry.name == ARGV[2] and entry.spec.leased then
      local b = bucket(entry, now)
      limit_left(entry.spec, b, now)
      grant(b)
      if entry.unit ~= '' or entry.asker then
        for _, lane in ipairs(pick(metered(entry), LANES)) do wake(lane, now, true) end
      end
    end
  end
  for _, entry in ipairs(lane_limits('', now).permits) do
    if entry.name == ARGV[2] and entry.lease then
      local b = bucket(entry.lease, now)
      grant(b)
      for _, lane in ipairs(pick(entry.blocked, math.max(0, b.n - read('ZCARD', entry.key)))) do wake(lane, now, true) end
    end
  end
end)
return done
