-- move_with.lua: write or delete what a tenant that moves has in a partition besides its jobs.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   the tenant, escaped; '' for what is no tenant's
-- ARGV[3]   the state that it must have, see move.lua; or the field 'layout' that the limits must have
-- ARGV[4..] for each write: n, and n words: a command, the name of one of Headgate's keys of the queue, and its
--           arguments; or 'PAUSE', scope, text and until when it is kept; 'RESUME' and scope; or 'DONE' and how
--           many jobs the tenant has completed
-- Returns   1; 0: that is not so, and nothing was written
-- Bound: the writes that the caller passes, 200 at most.
-- Full memory: it makes none of its writes, and is called again.
local tenant = ARGV[2]
local state
if tenant == '' then state = config().layout else state = read('HGET', headgate .. 'moves', tenant) end
if state ~= ARGV[3] then return 0 end
local i = 4
while i <= #ARGV do
  local words = {unpack(ARGV, i + 1, i + tonumber(ARGV[i]))}
  i = i + #words + 1
  if words[1] == 'PAUSE' then
    pause_set(words[2], words[3], tonumber(words[4]))
  elseif words[1] == 'RESUME' then
    if pause_text(words[2]) then pause_end(words[2]) end
  elseif words[1] == 'DONE' then
    local _, known = tenant_read(read('HGET', headgate .. 'tenants', tenant))
    tenant_add(tenant, 0, tonumber(words[2]) - (known or 0), 0, 0)
  else
    plan(words[1], headgate .. words[2], unpack(words, 3))
  end
end
return 1
