-- enqueue_fresh.lua: accept one job in the most frequent case, and leave the others to
-- enqueue.lua.
--
-- It takes the same arguments as enqueue.lua, with a line. If it returns nothing, the
-- caller runs enqueue.lua. It does the same as enqueue.lua for one job with an id of its
-- own and without key, deadline, delay, costs, priority or follow-up, in a lane that
-- holds a job that goes before it, and a queue without caps. It needs none of the functions for other cases,
-- nor plan.lua.
--
-- So it writes directly, and never raises. If it cannot read or write something, it
-- returns nothing: enqueue.lua reports the fault and writes the same task again.
local id, msg, tenant, attributes, digest, more, second = unpack(ARGV, 6)
if more ~= '' or second then return end

local call = redis.pcall
local answers, number = answers_key(ARGV[2]), ARGV[3]
local kept = call('GET', answers)
if kept and (type(kept) ~= 'string' or answers_read(kept, number)) then return end
local limits = call('HMGET', headgate .. 'limits', '*', 'layout')
local names = not limits.err and plain_attributes(limits[1])
if not names or (limits[2] or '') ~= ARGV[5] then return end
local lane = lane_of(names, tenant, attributes)
local first, position = call('ZRANGE', lane_key(lane), 0, 0, 'WITHSCORES'), BAND + clock()
if first.err or not first[1] or position < tonumber(first[2]) then return end

local tenants, size = headgate .. 'tenants', size_of(#msg)
local texts = call('HMGET', tenants, '*', tenant)
if texts.err then return end
local all, own = {tenant_read(texts[1])}, {tenant_read(texts[2])}
-- A tenant with a lane has waiting jobs. If its counts say that it has none, they are to be mended.
if not all[1] or (own[1] or 0) == 0 or type(call('HINCRBY', headgate .. 'totals', 'enqueued', '1')) ~= 'number' then return end

local written = call('HSET', task_key(id), 'msg', with_group(msg, lane), 'group', lane, 'state', 'aggregating', 'hg_body', body_write(digest, size))
if type(written) ~= 'number' then
  call('HINCRBY', headgate .. 'totals', 'enqueued', '-1')
  return
end
call('ZADD', lane_key(lane), int(position), id)
call('HSET', tenants, '*', tenant_write(all[1] + 1, all[2], all[3] + 1, all[4] + size, all[5]),
  tenant, tenant_write(own[1] + 1, own[2], own[3] + 1, own[4] + size))
call('SET', answers, answers_write(number, '[[1]]'), 'PX', ANSWERS_MS)
return {{1}}
