-- move_in.lua: put jobs of a tenant that arrives where they were in the partition that it left.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   token: of the attempt to move the tenants
-- ARGV[3..] for each job: id, tenant (escaped), "place score deadline" as in move_out.lua, n, and n words: the
--           fields and values of its task
-- Returns   the ids of those that are here now
-- Bound: the jobs that the caller passes.
-- Full memory: it makes none of its writes, and the jobs stay on their way.
local now, token = clock(), ARGV[2]
local here = {}
local i = 3
while i <= #ARGV do
  local id, tenant, text, n = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local first = i + 4
  i = first + n
  attempt('job ' .. id, function()
    if read('HGET', headgate .. 'moves', tenant) ~= 'comes ' .. token then return end
    local key = task_key(id)
    if read('EXISTS', key) == 0 then
      local place, score, deadline = leaving_read(text)
      local task = {}
      for k = first, first + n - 1, 2 do task[ARGV[k]] = ARGV[k + 1] end
      -- Of two fields in a message the last counts (message.lua).
      task.msg = (task.msg or '') .. string.char(34) .. varint(#ARGV[1]) .. ARGV[1]
      local fields = {}
      for name, value in pairs(task) do fields[#fields + 1], fields[#fields + 2] = name, value end
      plan('HSET', key, unpack(fields))
      if place == 'lane' then
        to_lane(task.group, id, score, now)
      elseif place == 'pending' then
        pend(id)
      else
        plan('ZADD', (place == 'archive' and headgate or asynq) .. place, int(score), id)
      end
      if deadline > 0 then plan('ZADD', headgate .. 'deadlines', int(deadline), id) end
      local _, size = body_read(task.hg_body)
      if size then tenant_add(tenant, 0, 0, 1, size) end
    end
    here[#here + 1] = id
  end)
end
return here
