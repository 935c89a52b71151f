-- periodic_mark.lua: note that ticks were fired.
--
-- KEYS[1]   headgate:periodic:fired, see periodic.lua
-- ARGV      two for each tick: entry's id, tick (Unix second)
-- Returns   the number of ticks
for i = 1, #ARGV, 2 do
  local id, tick = ARGV[i], tonumber(ARGV[i + 1])
  local last, chosen, where = fired(id)
  if tick > last then
    local text = string.format('%d', tick)
    if chosen > tick then text = string.format('%d %d %s', tick, chosen, where) end
    redis.call('HSET', KEYS[1], id, text)
  end
end
return #ARGV / 2
