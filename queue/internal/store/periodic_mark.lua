-- periodic_mark.lua: note that ticks were fired.
--
-- KEYS[1]   headgate:periodic:fired, see periodic.lua
-- ARGV      two for each tick: entry's id, tick (Unix second)
-- Returns   the number of ticks
for i = 1, #ARGV, 2 do
  local id, tick = ARGV[i], tonumber(ARGV[i + 1])
  local last, chosen, where = fired(id)
  if tick > last then redis.call('HSET', KEYS[1], id, fired_write(tick, chosen, where)) end
end
return #ARGV / 2
