-- progress.lua: how far a call has come.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   id of the job
-- ARGV[3]   hg_owner of the run that reports
-- ARGV[4]   percent, 0 to 100, and ARGV[5] a text
-- Returns   1; 0: the job does not belong to this run any more, and nothing was written
-- Full memory: it fails, and the report is dropped.
local key = task_key(ARGV[2])
if read('HGET', key, 'hg_owner') ~= ARGV[3] then return 0 end
plan('HSET', key, 'hg_progress', progress_write(ARGV[3], tonumber(ARGV[4]), clock(), ARGV[5]))
return 1
