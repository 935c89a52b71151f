-- front.lua: the commonest question, before all else.
--
-- One decision of one token bucket, or of a leaky one that polices, whose state is
-- plain (limits.lua) or absent. It answers as take.lua below would, to the last
-- bit; whatever it does not know it leaves to that. What stands here needs none of
-- the library's functions, which a script makes anew at every call: 5 µs of Redis
-- instead of 13.
if #KEYS == 1 and #ARGV == 13 and ARGV[2] == 'take' and ARGV[9] ~= '' and (ARGV[4] == 'tb' or ARGV[4] == 'lm') then
  local text = redis.pcall('GET', KEYS[1])
  if not text or (type(text) == 'string' and #text == 19 and string.sub(text, 16) == ARGV[9]) then
    local now = tonumber(ARGV[1])
    if not now then
      local time = redis.call('TIME')
      now = time[1] * 1000000 + time[2]
    end
    local p, b, n = tonumber(ARGV[5]), tonumber(ARGV[7]), tonumber(ARGV[11])
    local tat = text and 1577836800000000 + string.sub(text, 1, 15) or 0
    local overdue = tat > now + 60000000
    local idle = tat < now
    if idle then tat = now end
    local wait = idle and 0 or tat - (b - n) * p - now
    if n <= b and not overdue then
      if wait > 0 then return {now, 0, 1, wait, math.max(0, b - math.ceil((tat - now) / p)), tat - now} end
      local following = tat + n * p
      if following - now <= 60000000 and now > 1677836800000000 and now < 2477000000000000 then
        redis.call('SET', KEYS[1], string.format('%d%s', following - 1577836800000000, ARGV[9]), 'PX', math.ceil((following - now) / 1000) + 2000)
        return {now, 1, 1, 0, math.max(0, b - math.ceil((following - now) / p)), following - now}
      end
    end
  end
end
