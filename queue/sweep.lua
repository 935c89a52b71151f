-- sweep.lua: make known to the dispatcher what it cannot know, a slice at a time.
--
-- Lanes that hold jobs but stand nowhere: their producer was asynq's own client,
-- or wrote to the lane by another way. A count of waiting jobs that asynq's tools
-- made wrong, for tenants of one lane. Permits of jobs that asynq's tools took
-- away. Pauses that are over.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   cursor: where the last slice ended, '0' to begin
-- ARGV[3]   calendars as JSON, '' for none
-- Returns   {cursor, woken}
local now = clock()
set_calendars(ARGV[3])
local slice = redis.call('SSCAN', asynq .. 'groups', ARGV[2], 'COUNT', 100)
local woken = 0
for _, lane in ipairs(slice[2]) do
  local length = lane_length(lane)
  if length == 0 then
    lane_forget(lane)
  elseif not redis.call('ZSCORE', headgate .. 'ready', lane) and not redis.call('ZSCORE', headgate .. 'waiting', lane) then
    wake(lane, now)
    woken = woken + 1
  end
  for _, entry in ipairs(lane_limits(lane, now).permits) do
    for _, id in ipairs(redis.call('ZRANDMEMBER', entry.key, 20)) do
      local state = redis.call('HGET', task_key(id), 'state')
      if state ~= 'pending' and state ~= 'active' and state ~= 'retry' then free_permits(id, entry.key, now) end
    end
  end
  if #config().attributes == 0 and not string.find(lane, ';', 1, true) then
    backlog_add(lane, length - tonumber(redis.call('HGET', headgate .. 'backlog', lane) or 0))
  end
end
local pauses = redis.call('HSCAN', headgate .. 'pauses', 0, 'COUNT', 100)[2]
for i = 1, #pauses, 2 do
  if tonumber(string.match(pauses[i + 1], '^%d+')) < now then redis.call('HDEL', headgate .. 'pauses', pauses[i]) end
end
return {slice[1], woken}
