-- log.lua: decide calls of one sliding window log cheaply.
--
-- Its decisions are exactly those of take.lua, and the states that it leaves. A bucket that is paused, or
-- whose clock was set back, is left to take.lua, and nothing is changed for its calls. Like plain.lua
-- it does not use the library, nor functions of its own.
--
-- KEYS      buckets: one for every distinct key
-- ARGV[1]   now_us: the caller's clock, for tests; '' for TIME of this Redis
-- ARGV[2]   b, permits of a window
-- ARGV[3]   w, length of a window, µs
-- ARGV[4..] three for each question, those about one key one after the other: which key; n, permits
--           wanted, 1..b; how many calls ask this
-- Returns   as windows.lua
-- Clock     TIME of this Redis, read once
local now, b, w = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local reply, writes = {now}, {} -- of each key that is written: its number, whether it is new, permits that are over, new ones, its head
local question = 4
while question <= #ARGV do
  local which = tonumber(ARGV[question])
  local key, known, len, over, last, fresh, back = KEYS[which], true, 0, 0, 0, 0, '' -- back is ' rT', see limits.lua
  local head = redis.pcall('LINDEX', key, 0)
  if head then
    local written
    if type(head) == 'string' then written, back = string.match(head, '^@(%d+)(.*)$') end
    written = tonumber(written)
    local moment = 0
    if written and back ~= '' then moment = tonumber(string.match(back, '^ r(%d+)$') or '') end -- or it is paused
    known = written and moment and written <= now + 1000000
    if known and moment <= now - w then back = '' end
    if known then
      len = redis.call('LLEN', key) - 1
      if len > 0 then last = tonumber(redis.call('LINDEX', key, -1)) end
      -- Few permits are over since the last call, and they are the first ones.
      local step, within = 1, len + 1
      while last and within - over > 1 do
        local at = over + step < within and over + step or math.floor((over + within) / 2)
        local moment = tonumber(redis.call('LINDEX', key, at))
        if not moment then
          last = nil
        elseif moment <= now - w then
          over, step = at, 2 * step
        else
          within, step = at, len
        end
      end
      known = last ~= nil -- an entry that is no moment is take.lua's to name
    end
  end

  repeat
    local n, taken, wait, left, reset = tonumber(ARGV[question + 1]), 1, 0, 0, 0
    for _ = 1, tonumber(ARGV[question + 2]) do
      if not known then
        taken = -1
      elseif taken == 1 then
        local rank, opens = b - n + 1, math.max(now, last) -- the permit that must be over, from the newest
        if rank <= fresh then
          opens = now + w
        elseif rank <= len + fresh then
          local moment = tonumber(redis.call('LINDEX', key, fresh - rank))
          if moment then opens = math.max(opens, moment + w) else known = false end
        end
        wait = opens - now
        if not known then
          taken = -1
        elseif wait > 0 then
          taken = back == '' and 0 or 2
        else
          last, fresh = now, fresh + n
        end
        left = last > now and 0 or math.max(0, b - len + over - fresh)
        reset = math.max(0, last + w - now)
      end
      local r = #reply
      reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = taken, wait, left, reset
    end
    question = question + 3
  until ARGV[question] ~= ARGV[question - 3]
  if fresh > 0 then
    local k = #writes
    writes[k + 1], writes[k + 2], writes[k + 3], writes[k + 4], writes[k + 5] = which, not head, over, fresh, string.format('@%d%s', now, back)
  end
end

local moment = string.format('%d', now)
for k = 1, #writes, 5 do
  local key, new, over, fresh, head = KEYS[writes[k]], writes[k + 1], writes[k + 2], writes[k + 3], writes[k + 4]
  if new then redis.call('RPUSH', key, head) end
  while fresh > 0 do
    local few = {}
    for i = 1, math.min(fresh, 1000) do few[i] = moment end
    redis.call('RPUSH', key, unpack(few))
    fresh = fresh - #few
  end
  if over > 0 then redis.call('LTRIM', key, over, -1) end -- the last of them becomes the head
  if not new then redis.call('LSET', key, 0, head) end
  redis.call('PEXPIRE', key, string.format('%d', math.ceil(w / 1000) + 2000))
end
return reply
