-- enqueue_fresh.lua: accept one job in the most frequent case, and leave the others to
-- enqueue.lua.
--
-- It takes the same arguments as enqueue.lua, with a line. If it returns nothing, the
-- caller runs enqueue.lua. It does the same as enqueue.lua for one job with an id of its
-- own and without key, deadline, delay, costs, priority or follow-up, in a lane that
-- holds jobs and a queue without caps. It needs none of the functions for other cases,
-- nor plan.lua.
--
-- So it writes directly, and never raises. If it cannot read or write something, it
-- returns nothing: enqueue.lua reports the fault and writes the same task again. Only the
-- counts are taken back.
local id, msg, tenant, attributes, digest, more, second = unpack(ARGV, 5)
if more ~= '' or second then return end

local call = redis.pcall
local answers, number = answers_key(ARGV[2]), ARGV[3]
local kept = call('GET', answers)
if kept and (type(kept) ~= 'string' or answers_read(kept, number)) then return end
local names = plain_attributes(call('HGET', headgate .. 'limits', '*'))
if not names then return end
local lane = lane_of(names, tenant, attributes)
local length = call('ZCARD', lane_key(lane))
if type(length) ~= 'number' or length == 0 then return end

local written = call('HSET', task_key(id), 'msg', with_group(msg, lane), 'group', lane, 'state', 'aggregating', 'hg_digest', digest)
if type(written) ~= 'number' then return end
call('ZADD', lane_key(lane), int(BAND + clock()), id)
local backlog, totals = headgate .. 'backlog', headgate .. 'totals'
local all = call('HINCRBY', backlog, '*', '1')
local own = call('HINCRBY', backlog, tenant, '1')
local total = call('HINCRBY', totals, 'enqueued', '1')
local function counted(sum) return type(sum) == 'number' end
if not (counted(all) and counted(own) and counted(total) and own > 0) then
  if counted(all) then call('HINCRBY', backlog, '*', '-1') end
  if counted(own) then call('HINCRBY', backlog, tenant, '-1') end
  if counted(total) then call('HINCRBY', totals, 'enqueued', '-1') end
  return
end
call('SET', answers, answers_write(number, '[[1]]'), 'PX', ANSWERS_MS)
return {{1}}
