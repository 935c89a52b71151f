-- idle.lua: whether a queue has no jobs, for scripts that do without plan.lua and what is behind it.
--
-- An idle queue of many partitions is asked again and again, and those libraries would take most of that time.

-- no_jobs reports whether no jobs are in lanes, none is called, and none is in these other sets of asynq's. What is
-- damaged counts as jobs: it is left to the script that says so.
local function no_jobs(...)
  local headgate = 'headgate:{' .. ARGV[1] .. '}:'
  local counts = redis.pcall('HGET', headgate .. 'tenants', '*')
  if counts and (type(counts) ~= 'string' or not string.find(counts, '^0 ')) then return false end -- "waiting ..."
  local keys = {headgate .. 'ready', headgate .. 'waiting', asynq .. 'pending', asynq .. 'active'}
  for _, set in ipairs({...}) do keys[#keys + 1] = asynq .. set end
  return redis.call('EXISTS', unpack(keys)) == 0
end
