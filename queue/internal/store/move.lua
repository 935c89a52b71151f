-- move.lua: set the state of tenants that move to another partition of their queue.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   layout: the field 'layout' of the limits while the tenants move
-- ARGV[3]   from: the state that they have; '' for none, '*' for none or "comes TOKEN"
-- ARGV[4]   to: their next state; '' for none
-- ARGV[5..] the tenants, escaped; none to write without a change, so that a replica has something to acknowledge:
--           one that is away may have acknowledged all that was written before. '*' stands for those without a
--           state: its state is the layout from when the partition takes no new ones that belong elsewhere. '*ended'
--           has it in the first partition when all have arrived
-- Returns   those that have the next state now; none if the queue has another layout
-- Bound: the tenants that the caller passes.
-- Full memory: it runs (allow-oom), so that a move that has begun ends. It adds one field and one pause for
-- each tenant.
--
-- The states of a tenant, in the partition that it leaves and in the one where it arrives:
--
--   stop         its calls end and no others begin; it takes jobs
--   left TOKEN   it takes no jobs any more, and its own are taken to the other partition
--   gone         nothing of it is here any more
--
--   comes TOKEN  its jobs arrive, and no call begins
--   here         it has arrived
--
-- TOKEN names an attempt to move it. A worker that was stopped in the middle of one, and goes on after another
-- worker has done it again, changes nothing in the partition where the tenant has arrived.
local from, to = ARGV[3], ARGV[4]
local holds = to == 'stop' or string.find(to, '^left ') ~= nil or string.find(to, '^comes ') ~= nil
local moves, done = headgate .. 'moves', {}
if config().layout ~= ARGV[2] then return done end
if not ARGV[5] then plan('HINCRBY', headgate .. 'totals', 'limits', '0') end
for i = 5, #ARGV do
  local tenant = ARGV[i]
  attempt('tenant ' .. tenant, function()
    local state = read('HGET', moves, tenant) or ''
    local fits = state == from or (from == '*' and (state == '' or string.find(state, '^comes ') ~= nil))
    if fits and state ~= to then
      if to == '' then plan('HDEL', moves, tenant) else plan('HSET', moves, tenant, to) end
      local scope = move_scope(tenant)
      if not holds then
        if pause_text(scope) then pause_end(scope) end
      elseif not pause_text(scope) then
        pause(scope, 9e15, 'move', 'its jobs move to another partition of the queue')
      end
      state = to
    end
    if state == to then done[#done + 1] = tenant end
  end)
end
return done
