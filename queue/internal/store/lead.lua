-- lead.lua: which worker dispatches while there is little to do.
--
-- A library behind hand.lua, for dispatch.lua. Of the workers that handle the same kinds,
-- one leads, and the others stand by until its lead would end (lead.go). A leader with
-- more jobs than it should have alone makes all of them dispatch for a while.
--
--   lead:<kinds>  the worker that leads, or '*': all dispatch. It expires.
local LEAD, LEAD_MS = headgate .. 'lead:' .. ARGV[7], tonumber(ARGV[13])
local ALL_MS = 2 * LEAD_MS

-- lead returns for how long another worker leads, in ms; 0: the caller is to dispatch.
-- busy: the caller has too many jobs to lead.
local function lead(busy)
  local leader, left
  attempt(LEAD, function() leader = read('GET', LEAD) end)
  if leader then left = read('PTTL', LEAD) end
  -- A lead that lasts longer than it can was written before the clock was set back, or by
  -- something else.
  if not leader or left < 0 or left > (leader == '*' and ALL_MS or LEAD_MS) then leader, left = '', 0 end
  if busy then
    if leader ~= '*' then announcement = 'all' end
    if leader ~= '*' or left < ALL_MS / 2 then plan('SET', LEAD, '*', 'PX', int(ALL_MS)) end
    return 0
  elseif leader == '*' then
    return 0
  elseif leader ~= '' and leader ~= HAND_WORKER then
    return left
  end
  if left < 0.75 * LEAD_MS then plan('SET', LEAD, HAND_WORKER, 'PX', int(LEAD_MS)) end
  return 0
end
