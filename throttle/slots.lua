-- slots.lua: reserve slots of one token bucket, or of one leaky bucket that shapes, cheaply.
--
-- Its decisions are exactly those of take.lua, and the states that it leaves. It knows buckets of which
-- slots were reserved, and those that are not there. One that is paused, or has another rate, or whose
-- clock was set back, is left to take.lua, and nothing is changed for its calls. Like plain.lua it
-- does not use the library, nor functions of its own.
--
-- KEYS      buckets: one for every distinct key
-- ARGV[1]   now_us: the caller's clock, for tests; '' for TIME of this Redis
-- ARGV[2..5] a, p, r and b of the limit (limits.lua)
-- ARGV[6..] five for each question, as of take.lua, those about one key one after the other
-- Returns   {now_us, six for each call ...}: the first four as of windows.lua, then
--   delay   µs until the slot
--   mark    of the reservation (limit_refund)
-- Clock     TIME of this Redis, read once
local now, shaping, p, r, b = tonumber(ARGV[1]), ARGV[2] == 'lb', tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local most = shaping and 1 or b -- a queue lets one go at a time

-- Both have room for what one call needs, because tables that grow cost a tenth of the time.
local reply, writes = {now, 0, 0, 0, 0, 0, 0}, {0, 0, 0} -- of each key that is written: its name, text, and how long it is needed
local at, written = 1, 0
local question = 6
while question <= #ARGV do
  local which = tonumber(ARGV[question])
  local key, known, changed, tat, frac, last, mark, lows = KEYS[which], true, false, 0, 0, 0, 0, ''
  local text = redis.pcall('GET', key)
  if text then
    known = false
    if type(text) == 'string' then
      local t, part, permit, flow, latest, given, number, rest = string.match(text, '^r (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)([ %d:]*)$')
      tat = t and tonumber(t)
      if tat then
        last, mark, lows = tonumber(latest), tonumber(number), rest
        local same = tonumber(permit) == p and tonumber(flow) == r
        local sound = math.max(tat, mark, tonumber(part)) < 2 ^ 53 and tonumber(flow) > 0 and (tonumber(permit) > 0 or tat == 0)
        known = sound and tonumber(given) <= now and last <= math.max(tat, now) and (tat < now or same)
        if tat >= now then frac = tonumber(part) end
      end
    end
  end

  repeat
    local n, within = tonumber(ARGV[question + 1]), tonumber(ARGV[question + 2])
    local taken, wait, left, reset, delay = 1, 0, 0, 0, 0
    for _ = 1, tonumber(ARGV[question + 4]) do
      if not known then
        taken = -1
      elseif taken == 1 then
        local t = now
        if tat >= now then t = math.max(now, tat - math.floor(((shaping and 0 or b - n) * p - frac) / r)) end
        local opens = math.max(now, t - within)
        if shaping and b > 0 then -- the queue before the slot needs a place
          local slot, room = t, (b - n) * p
          if tat >= now and tat + (frac > 0 and 1 or 0) == t then slot, room = tat, room - frac end
          opens = math.max(opens, slot - math.floor(room / r))
        end
        wait, delay = opens - now, t - now
        if wait > 0 then
          taken = 0
        else
          if tat < now or tat + (frac > 0 and 1 or 0) < t then tat, frac = t, 0 end
          local low = math.max(0, tat - t)
          mark = (mark == 0 and now or mark) + 1
          local lowest = string.match(lows, '^ (%d+):')
          if not lowest or tonumber(lowest) >= low then
            lows = string.format(' %d:%d', low, mark)
          else -- remember of limits.lua
            local all, marks, closest = {}, {}, 1
            for one, number in string.gmatch(lows, '(%d+):(%d+)') do
              if tonumber(one) < low then all[#all + 1], marks[#all + 1] = tonumber(one), number end
            end
            all[#all + 1], marks[#all + 1] = low, string.format('%d', mark)
            if #all > 6 then
              for i = 2, 6 do
                if all[i + 1] - all[i] < all[closest + 1] - all[closest] then closest = i end
              end
              all[closest + 1] = all[closest]
              table.remove(all, closest)
              table.remove(marks, closest)
            end
            lows = ''
            for i = 1, #all do lows = string.format('%s %d:%s', lows, all[i], marks[i]) end
          end
          last = math.max(last, t) -- what was given last is owed still, or the clock was set back
          local units = frac + n * p
          local whole = math.floor(units / r)
          tat, frac, changed = tat + whole, units - whole * r, true
        end
        left, reset = most, 0
        if tat >= now then left, reset = math.max(0, most - math.ceil(((tat - now) * r + frac) / p)), tat - now + (frac > 0 and 1 or 0) end
      end
      reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4], reply[at + 5], reply[at + 6] = taken, wait, left, reset, delay, mark
      at = at + 6
    end
    question = question + 5
  until ARGV[question] ~= ARGV[question - 5]
  if changed then
    writes[written + 1], writes[written + 2] = key, string.format('r %d %d %d %d %d %d %d%s', tat, frac, p, r, last, now, mark, lows)
    writes[written + 3] = string.format('%d', math.max(0, math.ceil((tat - now) / 1000)) + 2000)
    written = written + 3
  end
end
for i = 1, written, 3 do redis.call('SET', writes[i], writes[i + 1], 'PX', writes[i + 2]) end
return reply
