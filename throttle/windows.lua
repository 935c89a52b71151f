-- windows.lua: decide calls of one fixed window or sliding window counter cheaply.
--
-- Its decisions are exactly those of take.lua, and the states that it leaves. A bucket that is paused, or
-- reserved in a later window, or whose clock was set back, is left to take.lua, and nothing is
-- changed for its calls. Like plain.lua it does not use the library, nor functions of its own.
--
-- KEYS      buckets: one for every distinct key
-- ARGV[1]   now_us: the caller's clock, for tests; '' for TIME of this Redis
-- ARGV[2]   'fw' fixed window | 'sc' sliding window counter
-- ARGV[3]   b, permits of a window
-- ARGV[4]   length of a window, µs; or the starts of the calendar windows around now, with commas
-- ARGV[5..] three for each question, those about one key one after the other: which key; n, permits
--           wanted, 1..b; how many calls ask this
-- Returns   {now_us, four for each call ...}
--   taken   1 | 0 | 2: 0, but permits may come back before `wait` is over | -1: ask take.lua
--   wait    µs until the same call would be admitted; 0 if it was
--   left    permits that the limit still has
--   reset   µs until the limit is full again
-- Clock     TIME of this Redis, read once
local now, sliding, b, w = tonumber(ARGV[1]), ARGV[2] == 'sc', tonumber(ARGV[3]), tonumber(ARGV[4])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local start, following
if w then
  start = now - now % w
  following = start + w
else
  for at in string.gmatch(ARGV[4], '%d+') do
    at = tonumber(at)
    if at > now then
      following = at
      break
    end
    start = at
  end
  start = following and start
end
local this = start and string.format(sliding and 'c %d %d ' or 'f %d %d ', start, sliding and w or following)

local reply, writes = {now}, nil
local key, known, previous, used, last, back -- of the key that is decided now; back is ' rT', see limits.lua
local at = 0
for question = 5, #ARGV, 3 do
  local which, n = tonumber(ARGV[question]), tonumber(ARGV[question + 1])
  if which ~= at then -- what counts in this window and, of a counter, in the one before it
    at, key, known, previous, used, last, back = which, KEYS[which], start, 0, 0, now, ''
    local text = start and redis.pcall('GET', key)
    if text then
      known = false
      if type(text) == 'string' then
        local of_this = string.sub(text, 1, #this) == this
        if sliding then
          local from, to, before, count, latest, written, behind = string.match(text, '^c (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)(.*)$')
          from = tonumber(from)
          -- Not of other windows, nor of a clock that was set back.
          if from and from <= now and tonumber(to) == w and from % w == 0 and tonumber(written) <= now + 1000000 then
            known, last, back = true, math.max(now, tonumber(latest)), behind
            if of_this then
              previous, used = tonumber(before), tonumber(count)
            elseif from + w == start then
              previous = tonumber(count)
            end
          end
        elseif of_this then
          local count, written, behind = string.match(text, '^(%d+) %d+ (%d+)(.*)$', #this + 1)
          if count and tonumber(written) <= now + 1000000 then known, used, back = true, tonumber(count), behind end
        else
          local from, count, latest, written, behind = string.match(text, '^f (%d+) %d+ (%d+) (%d+) (%d+)(.*)$')
          from, latest = tonumber(from), tonumber(latest)
          if from and from <= now and tonumber(written) <= now + 1000000 then
            known, back = true, behind
            if from == start or latest >= start and latest < following then used = tonumber(count) end
          end
        end
        if back ~= '' then
          local moment = tonumber(string.match(back, '^ r(%d+)$') or '')
          known = known and moment -- or it is paused
          if known and moment < start - (sliding and w or 0) then back = '' end
        end
      end
    end
  end

  local taken, wait, left, reset = 1, 0, 0, 0
  for _ = 1, tonumber(ARGV[question + 2]) do
    if not known then
      taken = -1
    elseif taken == 1 then
      local opens = now
      if not sliding then
        if used + n > b then opens = following end
      else
        local before, count, from = previous, used, start
        if count + n > b then before, count, from, opens = count, 0, following, following end
        local room = b - count - n
        if before > room then
          local u = 1 -- the precision, as in limits.lua
          while before * w / u >= 2 ^ 53 do u = u * 1000 end
          opens = math.max(opens, from + w - math.floor(((room + 1) * math.floor(w / u) - 1) / before) * u)
        end
      end
      wait = opens - now
      if wait > 0 then
        taken = back == '' and 0 or 2
      else
        used = used + n
        writes = writes or {}
        if sliding then
          writes[key] = string.format('%s%d %d %d %d%s', this, previous, used, last, now, back)
        else
          writes[key] = string.format('%s%d %d %d%s', this, used, now, now, back)
        end
      end
      if not sliding then
        left, reset = math.max(0, b - used), used > 0 and following - now or 0
      else
        local u = 1
        while previous * w / u >= 2 ^ 53 do u = u * 1000 end
        left = math.max(0, b - used - math.floor(previous * math.ceil((following - now) / u) / math.floor(w / u)))
        reset = used > 0 and following + w - now or previous > 0 and following - now or 0
      end
    end
    local r = #reply
    reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = taken, wait, left, reset
  end
end
if writes then
  local ms = string.format('%d', math.ceil((following + (sliding and w or 0) - now) / 1000) + 2000)
  for bucket, text in pairs(writes) do redis.call('SET', bucket, text, 'PX', ms) end
end
return reply
