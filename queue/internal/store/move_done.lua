-- move_done.lua: delete jobs that have arrived in another partition.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   token: of the attempt to move the tenants
-- ARGV[3..] for each job its id and its tenant, escaped
-- Returns   1
-- Bound: the jobs that the caller passes.
-- Full memory: it runs (allow-oom), as it deletes.
local leaving = headgate .. 'leaving'
for i = 3, #ARGV, 2 do
  if read('HGET', headgate .. 'moves', ARGV[i + 1]) == 'left ' .. ARGV[2] and read('HEXISTS', leaving, ARGV[i]) == 1 then
    plan('DEL', task_key(ARGV[i]))
    plan('HDEL', leaving, ARGV[i])
  end
end
return 1
