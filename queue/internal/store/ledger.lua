-- ledger.lua: store who has which permits of the shared limits of a queue, or of a budget, if nobody else did.
--
-- KEYS[1]   headgate:{queue}:ledger, headgate:{*budget}:ledger: or headgate:{*budget}:ledger:<tenant>
-- ARGV[1]   queue, the first partition; *budget
-- ARGV[2]   number of the ledger that the caller read; '' if there was none
-- ARGV[3]   "NUMBER JSON", the new one
-- ARGV[4]   for how many ms it is kept; '' for ever
-- Returns   1, or 0 if another one is stored
-- Full memory: it runs (allow-oom), so that jobs go: it replaces one small key.
local stored
attempt(KEYS[1], function() stored = read('GET', KEYS[1]) end)
local number = string.match(stored or '', '^(%d+) ') or ''
if number ~= ARGV[2] then return 0 end
if ARGV[4] == '' then plan('SET', KEYS[1], ARGV[3]) else plan('SET', KEYS[1], ARGV[3], 'PX', ARGV[4]) end
return 1
