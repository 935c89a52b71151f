-- unregister.lua: remove an empty queue.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   remove: 1 if it is to be removed, 0 to count its jobs
-- ARGV[3]   '', or of a partition that the queue has no more the field 'layout' of its limits; if it has another
--           one, it is not removed
-- Returns   -1: the limits have another layout; how many jobs there are; 0: the queue had none, and its keys are deleted
-- Bound: a fixed number of keys. Buckets and ledgers expire by themselves, and the audit stays.
-- Full memory: it runs (allow-oom), as it deletes.
local GONE_MS = 60000
local epoch = read('HGET', headgate .. 'limits', 'epoch') or '0 0'
local jobs = 0
for _, list in ipairs({'pending', 'active'}) do jobs = jobs + read('LLEN', asynq .. list) end
for _, set in ipairs({'scheduled', 'retry', 'archived', 'completed'}) do jobs = jobs + read('ZCARD', asynq .. set) end
jobs = jobs + read('HLEN', headgate .. 'leaving') + read('ZCARD', headgate .. 'archive') + math.max(waiting_jobs('*'), read('SCARD', asynq .. 'groups'))
if ARGV[3] ~= '' and ARGV[3] ~= config().layout and read('HEXISTS', headgate .. 'limits', '*') == 1 then return -1 end
if jobs > 0 or ARGV[2] ~= '1' then return jobs end
for _, name in ipairs({
  'limits', 'overrides', 'waiting', 'ready', 'unserved', 'vtime', 'skips', 'tenants', 'totals', 'pauses', 'pause_changes',
  'pause_ends', 'kinds', 'deadlines', 'watcher', 'lessor', 'archive', 'periodic', 'events', 'faults', 'moves', 'leaving',
  'counted',
}) do plan('DEL', headgate .. name) end
if ARGV[3] ~= '' then
  -- Workers look at it for a moment yet, and are not to take the limits for lost.
  plan('HSET', headgate .. 'limits', 'epoch', epoch)
  plan('PEXPIRE', headgate .. 'limits', tostring(GONE_MS))
end
for _, name in ipairs({'groups', 'paused', 'processed', 'failed', 'lease'}) do plan('DEL', asynq .. name) end
return 0
