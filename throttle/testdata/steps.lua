-- steps.lua: decisions one after the other, each with a clock of its own and
-- through Redis and back, as if each were a call.
--
-- KEYS      bucket of each limit
-- ARGV[1]   limits: how many
-- ARGV[2..] six for each limit as it polices, six for each as it shapes, then
--           four for each step: now, n, within (-1: police), id
-- Returns   three for each step: taken 1|0, µs until the slot or the next try,
--           the permits that the least limit has left
local count = tonumber(ARGV[1])
local forms = {{}, {}}
for i = 1, 2 * count do
  local form = i > count and 2 or 1
  forms[form][#forms[form] + 1] = limit_read(2 + (i - 1) * 6)
end
local reply = {}
for at = 2 + 12 * count, #ARGV, 4 do
  local now, n, within, id = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  local limits = forms[within < 0 and 1 or 2]
  local buckets, t = {}, now
  for i = 1, count do buckets[i] = limit_open(limits[i], KEYS[i], now) end
  repeat
    local before = t
    for i = 1, count do t = limit_earliest(limits[i], buckets[i], now, t, n) end
  until t == before
  local taken = t - now <= math.max(within, 0)
  for i = 1, count do
    if limits[i].a == 'cc' and limit_left(limits[i], buckets[i], now) == 0 then taken = false end
    if limit_place(limits[i], buckets[i], now, t, n) > now then taken = false end
  end
  local left = -1
  for i = 1, count do
    if taken then limit_commit(limits[i], buckets[i], now, t, n, id) end
    local rest = limit_left(limits[i], buckets[i], now)
    if left < 0 or rest < left then left = rest end
    limit_save(buckets[i], now)
  end
  local r = #reply
  reply[r + 1], reply[r + 2], reply[r + 3] = taken and 1 or 0, t - now, left
end
return reply
