-- dispatch_idle.lua: whether a partition that had nothing to dispatch still has nothing. Its leader goes on to lead.
--
-- KEYS[1]   headgate:{queue}:lead:<kinds>, see lead.lua
-- ARGV[1]   queue
-- ARGV[2]   the worker, which leads
-- ARGV[3]   lead_ms: for how long it leads from now
-- Returns   1: it has nothing; 0: run dispatch.lua
if redis.pcall('GET', KEYS[1]) ~= ARGV[2] or not no_jobs('scheduled', 'retry') then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
