-- ledger.lua: store who has which permits of the shared limits of a queue, if nobody else did.
--
-- KEYS[1]   headgate:{queue}:ledger
-- ARGV[1]   queue, the first partition
-- ARGV[2]   number of the ledger that the caller read; '' if there was none
-- ARGV[3]   "NUMBER JSON", the new one
-- Returns   1, or 0 if another one is stored
-- Full memory: it runs (allow-oom), so that jobs go: it replaces one small key.
local stored
attempt(KEYS[1], function() stored = read('GET', KEYS[1]) end)
local number = string.match(stored or '', '^(%d+) ') or ''
if number ~= ARGV[2] then return 0 end
plan('SET', KEYS[1], ARGV[3])
return 1
