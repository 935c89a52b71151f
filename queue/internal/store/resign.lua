-- resign.lua: a worker that ends gives up its lead, and all others look at once.
--
-- KEYS[1]   headgate:{queue}:lead:<kinds>, see lead.lua
-- ARGV[1]   the worker, ARGV[2] the channel of the queue's workers, ARGV[3] the message there
-- Returns   1: it led; 0: it did not
-- Full memory: it runs, as it only deletes.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[2], ARGV[3])
return 1
