-- limits.lua: when does a limit admit a call, and what is left of it afterwards?
--
-- A library, not a script: a script has what it uses of it in front of its body. A
-- bucket is read once, asked and used any number of times, and written once.
--
--   limit_open(limit, key, now)              the bucket, as it is in Redis
--   limit_earliest(limit, bucket, now, t, n) the first µs >= t at which n permits
--                                            are admitted; nil: never. Changes nothing.
--   limit_commit(limit, bucket, now, t, n, id)  takes n permits at t, which earliest gave
--   limit_refund(limit, bucket, now, t, n, mark)  gives back n of the permits that the
--                                            commit of this mark (limit_mark) took at t,
--                                            as far as nothing given since rests on them;
--                                            false where that is not at all
--   limit_charge(limit, bucket, now, n)      takes n permits that were used already
--   limit_mark(bucket)                       the number of its last commit; 0: none
--   limit_place(limit, bucket, now, t, n)    the first µs at which the queue in front of
--                                            the slot at t has a place for n permits
--   limit_left(limit, bucket, now)           permits that could go at once, >= 0
--   limit_reset(limit, bucket, now)          µs until nothing is owed any more
--   limit_save(bucket, now)                  writes it, if it has to be written
--
-- limit is a table of numbers, but for `a`:
--   a      'tb' token bucket | 'lb' leaky bucket, shaping | 'lm' leaky bucket,
--          policing (a meter) | 'fw' fixed window | 'sc' sliding window counter
--          'sl' sliding window log | 'cc' concurrency
--   p, r   one permit is p units, r units flow back per µs, p/r in lowest terms:
--          thirds and sevenths stay exact, nothing drifts          (tb, lb, lm)
--   b      burst (tb), capacity (lm; lb: largest cost, 0 = any), permits of a
--          window (fw, sc, sl), calls in flight (cc)
--   code   p as MMME, where it is one, and ":p/r", for plain forms    (tb, lm; nil: there is none)
--   w      length of a window, µs; windows are aligned to the epoch  (fw, sc, sl)
--   c      starts of the calendar windows around now, µs, ascending  (calendar fw)
--   ahead  how far beyond now slots are granted, µs. What lies further away
--          can only come from a clock that was set back.
--   l      how long a permit lives without being renewed, µs; nil: a year  (cc)
--   leased true: the bucket gives only what was leased to it             (tb, lb, fw)
--   pool   true: permits are leased, not parts of the timeline      (leased tb)
--
-- Only limit_save writes. What may raise is reading: limit_open raises where the key
-- holds no bucket, and the first question of a limit where the limit lacks what its
-- algorithm needs. A caller that has asked limit_earliest can commit, refund, charge
-- and save without an error.
--
-- now is Redis's clock in µs, one value for the whole script; t >= now is a
-- moment that may lie in the future. All numbers are integers below 2^53; limits
-- that would leave that range are refused when they are made.
--
-- What Redis holds, by kind:
--   rate     tb, lb, lm: "r tat frac p r last at mark lows": the theoretical arrival
--            time of the next permit in µs, the rest of it in units (0 <= frac < r),
--            the p and r it was written under, so that a changed rate is converted
--            and not misread, the latest moment given, when this was written, the
--            number of the last commit (0: not counted), and what is needed to give
--            permits back: see k.refund.
--            Plain, where nothing was given beyond now, and nothing can come back:
--            "T:p/r+frac@s", T being (tat - PLAIN_FROM) and s when this was written, in seconds.
--            Where r = 1 and no more than PLAIN_MAX is owed: one integer, T and p as
--            MMME = MMM * 10^E, which is less in Redis.
--   window   fw: "f start following used last at": the latest window used, the
--            permits used in it, the moment of the last one, and when it was given
--   counter  sc: "c start w previous used last at", likewise, with the window before it
--   log      sl: a list: "@at", then the moment of every permit, ascending
--            Behind a window, a counter, or a log's "@at" may be " rT": T is the latest moment at which permits
--            were taken that may come back (take.lua), as long as that counts.
--   permits  cc: a sorted set: id of the call -> when its permit lapses, µs
--   lease    leased tb, lb: "l id version shift share used last at SPAN...", by time: the
--            holder and the version of its account at the ledger (internal/partition), by how
--            much the ledger's clock is ahead of this Redis's, µs, the part of the limit that
--            the holder gets and how much of what can be leased is, in millionths, the latest
--            moment given, and when this was written. Spans are on the ledger's clock. A span
--            is a part of the timeline of a rate that only this bucket has:
--            "p r b from frac next frac keep frac", its rate and burst, where it begins, up
--            to where it is spent, and where what may be spent ends
--   quota    leased fw: "q id version shift share used last at n spent keep from until", likewise:
--            n permits of the window [from, until), of which `spent` were used, and up to
--            `keep` may be
--   pool     pool tb: "p id version shift share used last at n spent keep until back since LEAVING...",
--            the first seven as in a lease. n and spent only grow. back counts all permits that calls
--            gave back, and since is when the first of these calls had left of which the ledger may
--            not know. LEAVING has pairs: a moment, and the permits of calls that leave before it
-- A paused bucket has " !UNTIL REASON" behind its text, or behind the log's "@at". It is dropped by
-- the first write after the pause.

local function not_a_bucket(key) error('limits.lua: ' .. key .. ' holds no bucket', 0) end

local PLAIN_FROM = 1577836800000000 -- 2020, so that 19 digits last until 2049
local PLAIN_MAX = 60000000
local YEAR = 31622400000000
local DAY = 86400000000

local function gcd(a, b)
  while b > 0 do a, b = b, a % b end
  return a
end

-- rate_convert is the time that a debt of `whole` µs and `frac` units at p and r
-- takes at the limit's rate: never less, and exact where its products are.
local function rate_convert(limit, whole, frac, p, r)
  local common = gcd(p, limit.p)
  local units = whole * r + frac
  local permits = math.floor(units / p)
  local part = (units - permits * p) * (limit.p / common)
  if math.max(units, permits * limit.p, part) >= 2 ^ 52 then
    -- More than 71 years would leave the integers, and is never all the same.
    -- A µs more than floats round.
    return math.min(math.ceil((whole + 1) * (r / p) * (limit.p / limit.r)) + 1, 2 ^ 51), 0
  end
  units = permits * limit.p + math.ceil(part / (p / common))
  whole = math.floor(units / limit.r)
  return whole, units - whole * limit.r
end

-- size is a bucket's, in time: how long a full one takes to drain.
local function size(limit) return limit.w or math.ceil(math.max(limit.b, 1) * limit.p / limit.r) end

-- charged is what is used after a charge of n permits: at most `most`, but what was used before stays. The limit
-- may have been larger then.
local function charged(used, n, most) return math.max(used, math.min(used + n, most)) end

-- set_back is by how much the clock was set back since `at`, in µs. Within a
-- second it may be a wobble, which costs a second at most.
local function set_back(at, now) return at - now > 1000000 and at - now or 0 end

-- natural is a number of a bucket's text; nil where it leaves the integers.
local function natural(text)
  local n = tonumber(text, 10)
  return n and n < 2 ^ 53 and n or nil
end

-- naturals reads all numbers of a pattern's captures; nil where one is none.
local function naturals(first, ...)
  if not first then return nil end
  local numbers = {first, ...}
  for i = 1, #numbers do
    numbers[i] = natural(numbers[i])
    if not numbers[i] then return nil end
  end
  return numbers
end

local function text_write(s, now, text, ends)
  -- One that ends now is kept for the next call, because after a pause a leaky bucket that shapes owes less than one that polices.
  if s.pause >= now then
    text = text .. string.format(' !%.0f ', s.pause) .. s.why
    ends = math.max(ends, s.pause + size(s.limit))
  end
  -- PX counts from the command's clock, which is older than TIME, and an imitation
  -- of Redis may age its keys by a second at a time: two seconds over.
  redis.call('SET', s.key, text, 'PX', math.max(math.ceil((ends - now) / 1000), 0) + 2000)
end

-- back_read takes apart a text of a window, counter or log: what it has of permits taken, and the moment behind
-- " r", 0 for none, nil if that is no number.
local function back_read(text)
  local body, moment = string.match(text, '^(.*) r(%d+)$')
  if not moment then return text, 0 end
  return body, natural(moment)
end

-- back_text is what is behind the text while permits count that were taken since.
local function back_text(s, since)
  return s.revocable > 0 and s.revocable >= since and string.format(' r%.0f', s.revocable) or ''
end

-- Each kind is made when it is first needed: a script's functions are made anew
-- at every call, and most calls need one kind.
local make = {}

function make.rate()
  local k = {}

  function k.blank(s, now)
    s.tat, s.frac, s.p, s.r, s.last, s.at, s.mark, s.lows, s.plain = 0, 0, 0, 1, 0, now, 0, {}, true
  end

  function k.parse(s, text, now)
    if #text <= 19 and #text > 4 and not string.find(text, '%D') then
      -- The base is said because 050 is octal to an imitation of Redis.
      local digits = tonumber(string.sub(text, 1, -5), 10)
      local p = tonumber(string.sub(text, -4, -2), 10) * 10 ^ string.sub(text, -1)
      if p == 0 then return false end
      s.tat, s.frac, s.p, s.r, s.plain = PLAIN_FROM + digits, 0, p, 1, true
      s.last, s.at, s.mark, s.lows = now, now, 0, {}
      -- Nothing plain owes so much; the clock was set back.
      if s.tat > now + PLAIN_MAX then s.overdue = true end
      return true
    end
    local plain = naturals(string.match(text, '^(%d+):(%d+)/(%d+)%+(%d+)@(%d+)$'))
    if plain then
      if plain[2] == 0 or plain[3] == 0 then return false end
      s.tat, s.p, s.r, s.frac, s.at, s.plain = PLAIN_FROM + plain[1], plain[2], plain[3], plain[4], plain[5] * 1000000, true
      s.last, s.mark, s.lows = now, 0, {}
      return true
    end
    local first, lows = string.match(text, '^r (%d+ %d+ %d+ %d+ %d+ %d+ %d+)([ %d:]*)$')
    if not first then return false end
    local n = naturals(string.match(first, '(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)'))
    -- A bucket that nothing was taken from yet has p = 0, and owes nothing.
    if not n or n[4] == 0 or (n[3] == 0 and n[1] > 0) then return false end
    s.tat, s.frac, s.p, s.r, s.last, s.at, s.mark, s.lows = n[1], n[2], n[3], n[4], n[5], n[6], n[7], {}
    for low, number in string.gmatch(lows, '(%d+):(%d+)') do
      low, number = natural(low), natural(number)
      if not low or not number then return false end
      s.lows[#s.lows + 1] = {low = low, mark = number}
    end
    return true
  end

  -- nothing_back makes earlier commits give nothing back: what they took is not what is owed any more.
  local function nothing_back(s)
    if s.mark > 0 then s.mark, s.lows = s.mark + 1, {{low = 0, mark = s.mark + 1}} end
  end

  function k.sync(limit, s, now)
    local back = set_back(s.at, now)
    if back > 0 then
      s.tat, s.last, s.at, s.mended = math.max(0, s.tat - back), math.max(0, s.last - back), now, true
      if s.pause > 0 then s.pause = math.max(0, s.pause - back) end
    end
    if s.overdue then
      s.tat, s.overdue, s.mended = now + math.min(PLAIN_MAX, size(limit)), nil, true
    end
    if s.tat < now then
      s.p, s.r, s.frac = limit.p, limit.r, 0
    elseif s.p ~= limit.p or s.r ~= limit.r then
      -- What is owed counts in permits and keeps its number under the new rate.
      -- Slots that were already given stand no further ahead than `ahead`, and a
      -- faster rate must not give theirs a second time: it holds from the last one
      -- on. It drains at the new rate from now on, so it is written.
      local last = math.min(math.max(s.last, now), now + limit.ahead)
      -- One that stands further is of a clock that was set back a little: a slower rate
      -- would make much of that.
      s.tat = s.tat - math.max(0, s.last - last)
      local owed, part = rate_convert(limit, s.tat - now, s.frac, s.p, s.r)
      local after, rest = 0, 0
      if s.tat >= last then after, rest = rate_convert(limit, s.tat - last, s.frac, s.p, s.r) end
      s.tat, s.frac = now + owed, part
      if last + after > s.tat or (last + after == s.tat and rest > part) then s.tat, s.frac = last + after, rest end
      s.p, s.r, s.mended = limit.p, limit.r, true
      nothing_back(s)
    end
    -- What is owed of a larger burst stays. What the clock's step back made of it does not.
    if limit.b > 0 and s.at > now then
      local most = now + limit.ahead + size(limit)
      if s.tat > most then s.tat, s.frac = most, 0 end
    end
    if s.pause > 0 then
      -- After a pause the rate starts with one permit, not with a burst.
      local floor = s.pause
      if limit.a ~= 'lb' then floor = floor + math.ceil((limit.b - 1) * limit.p / limit.r) end
      if s.tat < floor then
        s.tat, s.frac = floor, 0
        nothing_back(s) -- it would make a burst of that one permit
      end
    end
  end

  function k.earliest(limit, s, now, t, n)
    if limit.b > 0 and n > limit.b then return nil end
    if s.tat < now then return t end
    local slack = limit.a == 'lb' and 0 or limit.b - n -- permits that may be ahead of the rate
    -- tat - slack * p / r, rounded up: a moment too early would be the caller's gain.
    return math.max(t, s.tat - math.floor((slack * limit.p - s.frac) / limit.r))
  end

  -- Of permits that were taken and not used, as much comes back as was owed at
  -- every commit since: had they not been taken, the bucket would never have been
  -- fuller than full. So a bucket whose permits may come back remembers what was
  -- owed when (lows, by number of commit, ascending, without those that a later
  -- one undercuts), and no more than LOWS of it: of two that are close the lower
  -- one stands for both.
  local LOWS = 6

  local function remember(s, now, low)
    if s.mark == 0 then
      if not s.detailed then return end
      s.mark = now -- more than any number it had before it expired
    end
    s.mark = s.mark + 1
    local lows = s.lows
    while lows[1] and lows[#lows].low >= low do lows[#lows] = nil end
    lows[#lows + 1] = {low = low, mark = s.mark}
    if #lows > LOWS then
      local closest = 1
      for i = 2, LOWS do
        if lows[i + 1].low - lows[i].low < lows[closest + 1].low - lows[closest].low then closest = i end
      end
      lows[closest + 1].low = lows[closest].low
      table.remove(lows, closest)
    end
  end

  function k.commit(limit, s, now, t, n)
    local tat, frac = s.tat, s.frac
    -- An earliest moment is rounded up to a whole µs; the part that was rounded
    -- away is not idle time and stays credited, or 9,973/s would lose 0.7 %.
    if tat < now or tat + (frac > 0 and 1 or 0) < t then tat, frac = t, 0 end
    remember(s, now, tat - t > 0 and tat - t or 0)
    local units = frac + n * limit.p
    local whole = math.floor(units / limit.r)
    s.tat, s.frac, s.at = tat + whole, units - whole * limit.r, now
    if t >= s.last then
      s.last = t
    elseif tat < s.last then
      -- The clock was set back a little, and what was given last is not owed any more. So its moment is made
      -- nobody's, or it would come back.
      s.last = s.last + 1
    end
    if t > now then s.plain = false end
  end

  -- mark is the number of the commit; without one only the newest comes back,
  -- which is that of the last moment given. Of a bucket that shapes only the newest
  -- does: the others' calls stand in line at their moments.
  function k.refund(limit, s, now, t, n, mark)
    local units, newest = n * limit.p, s.last == t
    if mark then newest = s.mark == mark end
    if not newest then
      if limit.a == 'lb' or not mark or mark == 0 then return false end
      for i = 1, #s.lows do
        if s.lows[i].mark > mark then
          units = math.min(units, s.lows[i].low * limit.r)
          break
        end
      end
      if s.mark < mark or units <= 0 then return false end
      for i = 1, #s.lows do
        local one = s.lows[i]
        if one.mark > mark then one.low = math.max(0, one.low - math.ceil(units / limit.r)) end
      end
      for i = #s.lows, 2, -1 do
        if s.lows[i - 1].low >= s.lows[i].low then table.remove(s.lows, i - 1) end
      end
    end
    units = s.frac - units
    local whole = math.floor(units / limit.r)
    s.tat, s.frac = s.tat + whole, units - whole * limit.r
    return true
  end

  function k.charge(limit, s, now, n)
    local tat, frac = s.tat, s.frac
    if tat < now then tat, frac = now, 0 end
    remember(s, now, tat - now)
    local units = frac + n * limit.p
    local whole = math.floor(units / limit.r)
    local most = math.max(now, s.last) + (limit.b > 0 and 2 * size(limit) or YEAR)
    if tat + whole > most then
      s.tat, s.frac = math.max(tat, most), tat > most and frac or 0
    else
      s.tat, s.frac = tat + whole, units - whole * limit.r
    end
    s.at, s.plain = now, false
  end

  function k.place(limit, s, now, t, n)
    if limit.a ~= 'lb' or limit.b == 0 then return now end
    local room = (limit.b - n) * limit.p
    -- A slot is rounded up to a whole µs; what waits before it is not.
    if s.tat >= now and s.tat + (s.frac > 0 and 1 or 0) == t then t, room = s.tat, room - s.frac end
    return t - math.floor(room / limit.r)
  end

  function k.owed(limit, s, now)
    local base = math.max(now, s.last)
    if s.tat < base or s.p == 0 then return 0, base end
    return math.ceil(((s.tat - base) * s.r + s.frac) / s.p), base
  end

  function k.left(limit, s, now)
    local most = limit.a == 'lb' and 1 or math.max(limit.b, 1) -- a queue lets one go at a time
    if s.tat < now then return most end
    return math.max(0, most - math.ceil(((s.tat - now) * limit.r + s.frac) / limit.p))
  end

  function k.reset(limit, s, now)
    if s.tat < now then return 0 end
    return s.tat - now + (s.frac > 0 and 1 or 0)
  end

  function k.save(s, now)
    local code = s.plain and not s.detailed and s.pause < now and s.tat >= PLAIN_FROM + 1e14 and s.tat < PLAIN_FROM + 9e14 and s.limit.code
    if code then
      local digits, rate = string.match(code, '^(%d*)(.*)$')
      if digits ~= '' and s.tat - now <= PLAIN_MAX then
        text_write(s, now, string.format('%.0f%s', s.tat - PLAIN_FROM, digits), s.tat)
      else
        text_write(s, now, string.format('%.0f%s+%.0f@%.0f', s.tat - PLAIN_FROM, rate, s.frac, math.floor(now / 1000000)), s.tat)
      end
    else
      local text = string.format('r %.0f %.0f %.0f %.0f %.0f %.0f %.0f', s.tat, s.frac, s.p, s.r, s.last, s.at, s.mark)
      for i = 1, #s.lows do text = string.format('%s %.0f:%.0f', text, s.lows[i].low, s.lows[i].mark) end
      text_write(s, now, text, s.tat)
    end
  end

  return k
end

-- How long after now a call is accounted for at the latest, if its slot has come: the time
-- to hand it over, and to spread those that are handed over at once. limit.within is that of a
-- slot that lasts longer, because earlier ones were missed.
local HAND_OVER = 25000

-- holder gives the kinds lease, quota and pool what they have in common. A holder has a state and a name of its
-- own: that of one that was lost is never used again. k.clear forgets what was leased, k.fill takes it from
-- numbers and returns false where they are none, and k.numbers returns them, and when the last of it ends.
-- k.share makes of a bucket that was not leased one that tells the ledger what was used.
local function holder(k, letter)
  function k.blank(s, now)
    s.id, s.version, s.shift, s.share, s.used, s.last, s.at, s.fresh = now, 0, 0, 1000000, 0, 0, now, true
    k.clear(s)
  end

  function k.parse(s, text)
    local head, minus, tail, rest = string.match(text, '^%a (%d+ %d+) (%-?)(%d+ %d+ %d+ %d+ %d+)([ %d]*)$')
    local n = head and naturals(string.match(head .. ' ' .. tail, '(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)'))
    if not n then return false end
    s.id, s.version, s.shift, s.share, s.used, s.last, s.at = n[1], n[2], minus == '-' and -n[3] or n[3], n[4], n[5], n[6], n[7]
    local numbers = {}
    for word in string.gmatch(rest, '%d+') do
      local number = natural(word)
      if not number then return false end
      numbers[#numbers + 1] = number
    end
    return k.fill(s, numbers)
  end

  -- What was leased is of a clock that is no more.
  function k.sync(_, s, now)
    local back = set_back(s.at, now)
    if back == 0 then return end
    s.id, s.version, s.last, s.at, s.mended = now, 0, math.max(0, s.last - back), now, true
    if s.pause > 0 then s.pause = math.max(0, s.pause - back) end
    k.clear(s)
  end

  function k.owed() return 0 end

  function k.save(s, now)
    local numbers, ends = k.numbers(s, now)
    local text = string.format('%s %.0f %.0f %.0f %.0f %.0f %.0f %.0f', letter, s.id, s.version, s.shift, s.share, s.used, s.last, s.at)
    text_write(s, now, text .. numbers, math.max(now + DAY, ends))
  end
end

function make.lease()
  local k = {}
  holder(k, 'l')

  function k.clear(s) s.spans = {} end

  -- What was used of a rate before it was leased is a span of which nothing is left: the ledger leases what
  -- comes after it.
  function k.share(limit, s, now)
    local tat, last = s.tat + (s.frac > 0 and 1 or 0), s.last
    k.blank(s, now)
    s.last, s.mark = last, nil
    if tat <= now then return end
    s.spans[1] = {
      p = limit.p, r = limit.r, b = limit.a == 'tb' and limit.b or 0, from = tat, from_frac = 0, next = tat, frac = 0, keep = tat, keep_frac = 0,
    }
  end

  function k.fill(s, words)
    if #words % 9 > 0 then return false end
    s.spans = {}
    for i = 1, #words, 9 do
      local span = {
        p = words[i], r = words[i + 1], b = words[i + 2], from = words[i + 3], from_frac = words[i + 4],
        next = words[i + 5], frac = words[i + 6], keep = words[i + 7], keep_frac = words[i + 8],
      }
      if span.p == 0 or span.r == 0 then return false end
      s.spans[#s.spans + 1] = span
    end
    return true
  end

  -- after returns the point that is n permits after the next one that may be spent at `at`.
  local function after(span, at, n)
    local whole, frac = span.next, span.frac
    if whole + (frac > 0 and 1 or 0) < at then whole, frac = at, 0 end
    local units = frac + n * span.p
    local more = math.floor(units / span.r)
    return whole + more, units - more * span.r
  end

  -- fits returns the first moment from t on at which a call may take n permits of a span, and the
  -- point after them; nil if they are not there when the call is accounted for by `by`.
  local function fits(span, t, n, by)
    if span.b > 0 and n > span.b then return nil end
    local slack = span.b > 0 and span.b - n or 0
    local e = math.max(t, span.next - math.floor((slack * span.p - span.frac) / span.r))
    local whole, frac = after(span, math.max(e, by), n)
    if whole > span.keep or (whole == span.keep and frac > span.keep_frac) then return nil end
    return e, whole, frac
  end

  -- Without permits it is later than any slot is granted.
  function k.earliest(limit, s, now, t, n)
    if limit.b > 0 and n > limit.b then return nil end
    if s.pause > t then t = s.pause end
    for _, span in ipairs(s.spans) do
      local e = fits(span, t + s.shift, n, now + s.shift + math.max(HAND_OVER, limit.within or 0))
      if e then return e - s.shift end
    end
    return math.max(t, now + limit.ahead + 1)
  end

  function k.commit(limit, s, now, t, n)
    for _, span in ipairs(s.spans) do
      local e, whole, frac = fits(span, t + s.shift, n, t + s.shift)
      if e == t + s.shift then
        span.next, span.frac, s.last, s.at = whole, frac, math.max(s.last, t), now
        return
      end
    end
  end

  -- The ledger has other uses for what is not used.
  function k.refund() return false end

  -- have returns how many permits of a span are left.
  local function have(s, span, now)
    local whole, frac = after(span, now + s.shift, 0)
    return math.max(0, math.floor(((span.keep - whole) * span.r + span.keep_frac - frac) / span.p))
  end

  function k.charge(limit, s, now, n)
    for _, span in ipairs(s.spans) do
      local take = math.min(n, have(s, span, now))
      if take > 0 then span.next, span.frac = after(span, now + s.shift, take) end
      n = n - take
    end
    s.at = now
  end

  function k.left(limit, s, now)
    local left = 0
    for _, span in ipairs(s.spans) do left = left + have(s, span, now) end
    return left
  end

  function k.reset(limit, s, now)
    local last = s.spans[#s.spans]
    return last and math.max(0, last.keep - s.shift - now) or 0
  end

  function k.numbers(s, now)
    local text, ends = '', 0
    for _, span in ipairs(s.spans) do
      -- No answer of the ledger names one that ended a second ago.
      if span.keep > now + s.shift - 1000000 then
        text = text .. string.format(' %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f',
          span.p, span.r, span.b, span.from, span.from_frac, span.next, span.frac, span.keep, span.keep_frac)
        ends = math.max(ends, span.keep - s.shift)
      end
    end
    return text, ends
  end

  return k
end

function make.quota()
  local k = {}
  holder(k, 'q')

  function k.clear(s) s.n, s.spent, s.keep, s.from, s.ends = 0, 0, 0, 0, 0 end

  -- What was used of a window before it was leased is, as if it had been leased and was spent.
  function k.share(_, s, now)
    local used, from, ends, last = s.used, s.start, s.following, s.last
    k.blank(s, now)
    s.last = last
    if ends > now then s.n, s.spent, s.keep, s.from, s.ends = used, used, used, from, ends end
  end

  function k.fill(s, n)
    s.n, s.spent, s.keep, s.from, s.ends = n[1], n[2], n[3], n[4], n[5]
    return #n == 5
  end

  function k.numbers(s)
    return string.format(' %.0f %.0f %.0f %.0f %.0f', s.n, s.spent, s.keep, s.from, s.ends), s.ends - s.shift
  end

  -- Without permits it is later than any slot is granted. If all are used up, that is the next window.
  function k.earliest(limit, s, now, t, n)
    if n > limit.b then return nil end
    t = math.max(t, s.pause)
    local e = math.max(t, s.from - s.shift)
    if math.max(e, now) + math.max(HAND_OVER, limit.within or 0) + s.shift < s.ends and s.spent + n <= math.min(s.n, s.keep) then return e end
    return math.max(t, now + limit.ahead + 1, s.used == 1000000 and s.ends - s.shift or 0)
  end

  function k.commit(_, s, now, t, n)
    if t + s.shift < s.from or t + s.shift >= s.ends then return end
    s.spent, s.last, s.at = s.spent + n, math.max(s.last, t), now
  end

  function k.refund(_, s, now, t, n)
    if t + s.shift < s.from or t + s.shift >= s.ends then return false end
    s.spent = math.max(0, s.spent - n)
    return true
  end

  -- The ledger takes what was used beyond what was leased from the rest of the quota.
  function k.charge(limit, s, now, n)
    s.spent, s.at = charged(s.spent, n, s.n + 2 * limit.b), now
  end

  -- If the limit is still leased, under another algorithm, its ledger knows what was used.
  function k.owed(limit, s, now)
    local used = not limit.leased and now + s.shift < s.ends and s.spent or 0
    return used, math.max(now, s.last)
  end

  function k.left(_, s, now)
    now = now + s.shift
    return now >= s.from and now < s.ends and math.max(0, math.min(s.n, s.keep) - s.spent) or 0
  end

  function k.reset(_, s, now)
    return s.used > 0 and math.max(0, s.ends - s.shift - now) or 0
  end

  return k
end

function make.pool()
  local k = {}
  holder(k, 'p')
  local LEAVING = 50000 -- how exactly it is known when calls leave, µs

  function k.clear(s) s.n, s.spent, s.keep, s.ends, s.back, s.since, s.leaving = 0, 0, 0, 0, 0, 0, {} end

  -- What was used before permits were leased is owed.
  function k.share(limit, s, now)
    local used, last = s.tat < now and 0 or math.ceil(((s.tat - now) * limit.r + s.frac) / limit.p), s.last
    k.blank(s, now)
    s.last, s.mark, s.spent = last, nil, used
  end

  function k.fill(s, n)
    if #n < 6 or #n % 2 > 0 then return false end
    k.clear(s)
    s.n, s.spent, s.keep, s.ends, s.back, s.since = unpack(n, 1, 6)
    for i = 7, #n, 2 do s.leaving[#s.leaving + 1] = {till = n[i], n = n[i + 1]} end
    return true
  end

  function k.numbers(s, now)
    local text = string.format(' %.0f %.0f %.0f %.0f %.0f %.0f', s.n, s.spent, s.keep, s.ends, s.back, s.since)
    for _, one in ipairs(s.leaving) do
      if one.till > now + s.shift then text = text .. string.format(' %.0f %.0f', one.till, one.n) end
    end
    return text, s.ends - s.shift
  end

  -- Without permits it is later than any slot is granted.
  function k.earliest(limit, s, now, t, n)
    if n > limit.b then return nil end
    t = math.max(t, s.pause)
    if math.max(t, now) + math.max(HAND_OVER, limit.within or 0) + s.shift < s.ends and s.spent + n <= math.min(s.n, s.keep) then return t end
    return math.max(t, now + limit.ahead + 1)
  end

  -- Until it has left, a call may reach the receiver with others that come later, so the ledger keeps room for
  -- its permits.
  function k.commit(_, s, now, t, n)
    local till = math.ceil((t + s.shift) / LEAVING) * LEAVING
    s.spent, s.last, s.at = s.spent + n, math.max(s.last, t), now
    for _, one in ipairs(s.leaving) do
      if one.till == till then
        one.n = one.n + n
        return
      end
    end
    s.leaving[#s.leaving + 1] = {till = till, n = n}
  end

  -- The ledger takes it back, and leases it again.
  function k.refund(_, s, now, t, n)
    local left = math.ceil((t + s.shift) / LEAVING) * LEAVING
    if s.since == 0 or left < s.since then s.since = left end
    for _, one in ipairs(s.leaving) do
      if one.till == left then one.n = math.max(0, one.n - n) end -- they do not leave any more
    end
    s.back = s.back + n
    return true
  end

  -- What was used beyond what was leased is owed.
  function k.charge(limit, s, now, n)
    s.spent, s.at = charged(s.spent, n, s.n + 2 * limit.b), now
  end

  function k.left(_, s, now)
    return now + s.shift < s.ends and math.max(0, math.min(s.n, s.keep) - s.spent) or 0
  end

  -- What was used of all comes back meanwhile.
  function k.reset(limit, s, now)
    return math.max(0, math.ceil(s.used / 1000000 * limit.b * limit.p / limit.r) - (now - s.at))
  end

  return k
end

-- window_at returns the start of t's window and of the one after it; nil where
-- the calendar ends.
local function window_at(limit, t)
  if limit.w then
    local start = t - t % limit.w
    return start, start + limit.w
  end
  local c = limit.c
  for i = #c - 1, 1, -1 do
    if c[i] <= t then
      if t < c[i + 1] then return c[i], c[i + 1] end
      break
    end
  end
  return nil
end

function make.window()
  local k = {}

  function k.blank(s, now)
    s.start, s.following, s.used, s.last, s.at, s.revocable = 0, 0, 0, 0, now, 0
  end

  function k.parse(s, text)
    text, s.revocable = back_read(text)
    local n = s.revocable and naturals(string.match(text, '^f (%d+) (%d+) (%d+) (%d+) (%d+)$'))
    if not n then return false end
    s.start, s.following, s.used, s.last, s.at = n[1], n[2], n[3], n[4], n[5]
    return true
  end

  -- After a step back, what was used counts against the window that the clock
  -- shows now.
  function k.sync(limit, s, now)
    local back = set_back(s.at, now)
    if back == 0 then return end
    s.last, s.at, s.mended = math.max(0, s.last - back), now, true
    if s.pause > 0 then s.pause = math.max(0, s.pause - back) end
    local start, following = window_at(limit, s.last)
    s.start, s.following = start or s.last, following or s.last
  end

  -- used is what counts against the window [start, following): everything in the
  -- stored window if its last permit fell into this one, which is exact while the
  -- windows stay the same and errs against the caller when their length changed.
  local function used(s, start, following)
    if s.start == start or (s.last >= start and s.last < following) then return s.used end
    return 0
  end

  -- A time beyond the calendar is only an estimate. The present must lie in it: otherwise the
  -- caller's clock is days away from Redis's, and nothing would be counted.
  function k.earliest(limit, s, now, t, n)
    if n > limit.b then return nil end
    -- One window is remembered: once a later one was used, none before it is given.
    -- Further ahead than slots go is a clock that was set back.
    if s.start > t and s.start <= now + limit.ahead then t = s.start end
    if s.pause > t then t = s.pause end
    local start, following = window_at(limit, t)
    if not start then
      if not window_at(limit, now) then
        error("STALE the calendar does not hold the time of Redis: compare the clocks of this machine and of Redis's", 0)
      end
      return t
    end
    if used(s, start, following) + n > limit.b then return following end
    return t
  end

  function k.commit(limit, s, now, t, n)
    local start, following = window_at(limit, t)
    if not start then
      -- Where the calendar ends, its last window does not.
      start, following = limit.c[#limit.c], t + 1
    end
    s.used = used(s, start, following) + n
    s.start, s.following, s.last, s.at = start, following, t, now
    if s.reserves then s.revocable = math.max(s.revocable, t) end
  end

  function k.refund(limit, s, now, t, n)
    if s.start ~= window_at(limit, t) then return false end
    s.used = math.max(0, s.used - n)
    return true
  end

  function k.charge(limit, s, now, n)
    -- If a later window was used already, it is charged. So is the last one that was used if the caller's calendar does not
    -- hold now, because it does not say which window this is.
    if s.start <= now and window_at(limit, now) then k.commit(limit, s, now, now, 0) end
    s.used, s.at = charged(s.used, n, 2 * limit.b), now
  end

  function k.owed(limit, s, now)
    local base = math.max(now, s.last)
    return base < s.following and s.used or 0, base
  end

  function k.left(limit, s, now)
    local start, following = window_at(limit, now)
    if not start or (s.start > now and s.start <= now + limit.ahead) then return 0 end
    return math.max(0, limit.b - used(s, start, following))
  end

  function k.reset(limit, s, now)
    local start, following = window_at(limit, math.max(now, s.start))
    if not start or used(s, start, following) == 0 then return 0 end
    return following - now
  end

  function k.save(s, now)
    text_write(s, now, string.format('f %.0f %.0f %.0f %.0f %.0f', s.start, s.following, s.used, s.last, s.at) .. back_text(s, s.start), s.following)
  end

  return k
end

-- n permits go at t, d into its window, while
-- floor(previous * (w - d) / w) + used + n <= b. Rounded up, the last permit of a
-- window would never go: any rest of the previous one, however small, would take its
-- place, and a steady caller would get b - 1 of b.
function make.counter()
  local k = {}

  function k.blank(s, now)
    s.start, s.w, s.previous, s.used, s.last, s.at, s.revocable = 0, 0, 0, 0, 0, now, 0
  end

  function k.parse(s, text)
    text, s.revocable = back_read(text)
    local n = s.revocable and naturals(string.match(text, '^c (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'))
    if not n or (n[2] == 0 and n[3] + n[4] > 0) then return false end
    s.start, s.w, s.previous, s.used, s.last, s.at = n[1], n[2], n[3], n[4], n[5], n[6]
    return true
  end

  -- counts are those of the window that starts at `start` and of the one before it.
  local function counts(s, start)
    if start == s.start then return s.previous, s.used end
    if start == s.start + s.w then return s.used, 0 end
    return 0, 0
  end

  -- unit is the precision in µs, 1 where permits × µs stay below 2^53. A coarser
  -- one counts a part of the window before as longer than it is.
  local function unit(n, w)
    local u = 1
    while n * w / u >= 2 ^ 53 do u = u * 1000 end
    return u
  end

  -- estimate is what counts at t, not yet rounded. A quotient of integers below 2^53
  -- is never rounded to a whole number that it does not reach.
  local function estimate(s, t)
    local d = (t - s.start) % s.w
    local previous, used = counts(s, t - d)
    local u = unit(previous, s.w)
    return used, previous * math.ceil((s.w - d) / u) / math.floor(s.w / u)
  end

  function k.sync(limit, s, now)
    local back = set_back(s.at, now)
    if back > 0 then
      s.start, s.last, s.at, s.mended = math.max(0, s.start - back), math.max(0, s.last - back), now, true
      if s.pause > 0 then s.pause = math.max(0, s.pause - back) end
    end
    if s.w == limit.w and s.start % s.w == 0 then return end
    -- Other windows: what the old ones make of it at their end counts as just used.
    local used, base = k.owed(limit, s, now)
    s.start, s.w, s.previous, s.used = base - base % limit.w, limit.w, 0, used
    s.mended = s.mended or used > 0
  end

  function k.earliest(limit, s, now, t, n)
    if n > limit.b then return nil end
    -- Two windows are remembered, as with a fixed one.
    if s.start > t and s.start <= now + limit.ahead then t = s.start end
    if s.pause > t then t = s.pause end
    local start = t - t % limit.w
    local previous, used = counts(s, start)
    if used + n > limit.b then
      previous, used, start = used, 0, start + limit.w
      t = start
    end
    local room = limit.b - used - n
    if previous <= room then return t end
    -- previous * (w - d) / w < room + 1 from this d on:
    local u = unit(previous, limit.w)
    local d = limit.w - math.floor(((room + 1) * math.floor(limit.w / u) - 1) / previous) * u
    return math.max(t, start + d)
  end

  function k.commit(limit, s, now, t, n)
    local start = t - t % limit.w
    local previous, used = counts(s, start)
    s.start, s.previous, s.used, s.last, s.at = start, previous, used + n, math.max(t, s.last), now
    if s.reserves then s.revocable = math.max(s.revocable, t) end
  end

  function k.refund(limit, s, now, t, n)
    local start = t - t % limit.w
    if start == s.start then
      s.used = math.max(0, s.used - n)
    elseif start == s.start - s.w then
      s.previous = math.max(0, s.previous - n)
    else
      return false
    end
    return true
  end

  function k.charge(limit, s, now, n)
    k.commit(limit, s, now, math.max(now, s.start), 0) -- its window is the current one now
    s.used = charged(s.used, n, 2 * limit.b)
  end

  function k.owed(limit, s, now)
    local base = math.max(now, s.last)
    if s.w == 0 then return 0, base end
    -- Rounded up: a change of the limit gives nothing.
    local used, weighed = estimate(s, base)
    return used + math.ceil(weighed), base
  end

  function k.left(limit, s, now)
    if s.start > now and s.start <= now + limit.ahead then return 0 end
    local used, weighed = estimate(s, now)
    return math.max(0, limit.b - used - math.floor(weighed))
  end

  function k.reset(limit, s, now)
    local start = math.max(now, s.start)
    start = start - start % limit.w
    local previous, used = counts(s, start)
    if used > 0 then return start + 2 * limit.w - now end
    if previous > 0 then return start + limit.w - now end
    return 0
  end

  function k.save(s, now)
    local text = string.format('c %.0f %.0f %.0f %.0f %.0f %.0f', s.start, s.w, s.previous, s.used, s.last, s.at)
    text_write(s, now, text .. back_text(s, s.start - s.w), s.start + 2 * s.w)
  end

  return k
end

-- A log has the moments of a full window, and of what was reserved for later or charged: no more than this
-- in all, or a key could fill Redis.
local LONGEST_LOG = 20000

function make.log()
  local k = {}

  function k.blank(s, now)
    s.len, s.gone, s.last, s.at, s.fresh, s.cut, s.cuts, s.revocable = 0, 0, 0, now, {}, 0, {}, 0
  end

  -- read finds only what every call needs: a log may be long.
  function k.read(s, now)
    local head = redis.call('LINDEX', s.key, 0)
    k.blank(s, now)
    local body, ends, why = string.match(head, '^(@.-) !(%d+) (.*)$')
    if body then s.pause, s.why = natural(ends), why end
    body, s.revocable = back_read(body or head)
    s.at = natural(string.match(body, '^@(%d+)$') or '')
    if not (s.at and s.revocable and s.pause) then not_a_bucket(s.key) end
    s.stored = true
    s.len = redis.call('LLEN', s.key) - 1
    if s.len > 0 then s.last = k.stored(s, -1) end
  end

  -- stored is the entry at a place in the list.
  function k.stored(s, place)
    return natural(redis.call('LINDEX', s.key, place) or '') or not_a_bucket(s.key)
  end

  -- entry is the moment of the permit that is `rank` from the newest, from 1 on.
  -- Stored permits that were given back (cuts, newest first) do not count.
  local function entry(s, rank)
    local fresh = #s.fresh
    if rank <= fresh then return s.fresh[fresh - rank + 1] end
    local place = rank - fresh
    for _, cut in ipairs(s.cuts) do
      if place > cut.newer then place = place + cut.n end
    end
    return k.stored(s, -place)
  end

  -- passed is how many stored permits are no later than t, by bisection.
  local function passed(s, t)
    local low, high = 0, s.len
    if high == 0 or k.stored(s, 1) > t then return 0 end
    while low < high do
      local middle = math.ceil((low + high) / 2)
      if k.stored(s, middle) <= t then low = middle else high = middle - 1 end
    end
    return low
  end

  -- held is how many permits count: the stored ones from `gone` on, and new ones.
  local function held(s, gone) return s.len - s.cut - gone + #s.fresh end

  function k.sync(limit, s, now)
    local back = set_back(s.at, now)
    if back > 0 then
      local moments = redis.call('LRANGE', s.key, 1, -1)
      for i, t in ipairs(moments) do s.fresh[i] = (natural(t) or not_a_bucket(s.key)) - back end
      s.len, s.last, s.at, s.stored, s.mended, s.back = 0, math.max(0, s.last - back), now, false, true, back
      if s.pause > 0 then s.pause = math.max(0, s.pause - back) end
    end
    s.gone = passed(s, now - limit.w)
  end

  function k.earliest(limit, s, now, t, n)
    if n > limit.b then return nil end
    if s.pause > t then t = s.pause end
    -- Slots are given in the order of time; then this one is enough to look at:
    local rank = limit.b - n + 1
    if s.last > t then t = s.last end
    if rank > held(s, 0) then return t end
    return math.max(t, entry(s, rank) + limit.w)
  end

  function k.commit(limit, s, now, t, n)
    for _ = 1, n do s.fresh[#s.fresh + 1] = t end
    s.last, s.at = t, now
    if s.reserves then s.revocable = math.max(s.revocable, t) end
  end

  function k.place(limit, s, now, _, n)
    local rank = LONGEST_LOG - n + 1 -- the moment that must be over, from the newest
    if rank > held(s, s.gone) then return now end
    return math.max(now, entry(s, rank) + limit.w)
  end

  function k.refund(limit, s, now, t, n)
    local removed = 0
    if s.stored then
      if t <= now - limit.w then return false end -- it counts no more
      local upto = passed(s, t)
      local cut = nil
      for _, known in ipairs(s.cuts) do
        if known.t == t then cut = known end
      end
      removed = math.min(n, upto - passed(s, t - 1) - (cut and cut.n or 0))
      if removed > 0 then
        if not cut then
          cut = {t = t, n = 0, newer = s.len - upto}
          s.cuts[#s.cuts + 1] = cut
          table.sort(s.cuts, function(a, b) return a.newer < b.newer end)
        end
        cut.n, s.cut = cut.n + removed, s.cut + removed
      end
    end
    for i = #s.fresh, 1, -1 do -- what this call took, or moved as the clock was set back
      if removed < n and s.fresh[i] == t - (s.back or 0) then
        table.remove(s.fresh, i)
        removed = removed + 1
      end
    end
    s.last = held(s, 0) > 0 and entry(s, 1) or 0
    return removed > 0
  end

  function k.charge(limit, s, now, n)
    local room = 2 * limit.b - held(s, s.gone)
    k.commit(limit, s, now, math.max(now, s.last), math.max(0, math.min(n, room)))
  end

  function k.owed(limit, s, now)
    local base = math.max(now, s.last)
    return math.max(0, held(s, passed(s, base - size(limit)))), base
  end

  function k.left(limit, s, now)
    if s.last > now then return 0 end
    return math.max(0, limit.b - held(s, s.gone))
  end

  function k.reset(limit, s, now)
    return math.max(0, s.last + limit.w - now)
  end

  function k.save(s, now)
    local head, ends = string.format('@%.0f', s.at) .. back_text(s, now - s.limit.w + 1), s.last + s.limit.w
    if s.pause >= now then
      head, ends = head .. string.format(' !%.0f ', s.pause) .. s.why, math.max(ends, s.pause + s.limit.w)
    end
    -- What a full memory refuses comes first: it must not end half done.
    if not s.stored then
      redis.call('SET', s.key, head)
      redis.call('DEL', s.key)
      redis.call('RPUSH', s.key, head)
    end
    for _, cut in ipairs(s.cuts) do redis.call('LREM', s.key, -cut.n, string.format('%.0f', cut.t)) end
    s.len, s.cut, s.cuts = s.len - s.cut, 0, {}
    for i = 1, #s.fresh, 1000 do
      local few = {}
      for j = i, math.min(i + 999, #s.fresh) do few[#few + 1] = string.format('%.0f', s.fresh[j]) end
      redis.call('RPUSH', s.key, unpack(few))
    end
    if s.gone > 0 and #s.fresh > 0 then
      redis.call('LTRIM', s.key, s.gone, -1) -- the last of them becomes the head
      s.len, s.gone = s.len - s.gone, 0
    end
    redis.call('LSET', s.key, 0, head)
    s.stored, s.len, s.fresh = true, s.len + #s.fresh, {}
    redis.call('PEXPIRE', s.key, math.max(math.ceil((ends - now) / 1000), 0) + 2000)
  end

  return k
end

-- bucket_of is the bucket of another algorithm than permits that a key holds.
local bucket_of

-- A call holds one permit, whatever it costs, and from now on, whenever its
-- slot is.
function make.permits()
  local k = {}

  function k.blank() end

  local function held(s, now)
    if not s.held then
      local count = redis.pcall('ZCOUNT', s.key, string.format('(%.0f', now), '+inf')
      if type(count) == 'table' then
        bucket_of({key = s.key, pause = 0, why = ''}, now) -- raises where it is none
        count, s.foreign = 0, true
      end
      s.held, s.taken = count, {}
    end
    return s.held
  end

  -- Permits end within a lease, if the clock was not set back, nor the lease
  -- shortened.
  function k.sync(limit, s, now)
    local most = string.format('(%.0f', now + (limit.l or YEAR) + 1000000)
    local far = redis.pcall('ZREVRANGEBYSCORE', s.key, '+inf', most, 'LIMIT', 0, 1)
    s.far = far[1] ~= nil
    s.mended = s.far
  end

  -- With none left it is the moment at which one lapses, if nobody renews it.
  function k.earliest(limit, s, now, t)
    local over = held(s, now) - limit.b
    if over < 0 then return t end
    local first = {}
    if not s.foreign then
      first = redis.call('ZRANGEBYSCORE', s.key, string.format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', over, 1)
    end
    -- None: this call itself took the rest.
    return math.max(t, math.min(tonumber(first[2]) or math.huge, now + (limit.l or YEAR)))
  end

  function k.commit(_, s, now, _, _, id)
    s.held = held(s, now) + 1
    s.taken[#s.taken + 1] = id
  end

  function k.left(limit, s, now) return math.max(0, limit.b - held(s, now)) end

  function k.reset(_, s, now)
    if held(s, now) == 0 then return 0 end
    if #s.taken > 0 then return s.limit.l or YEAR end
    local last = redis.call('ZREVRANGE', s.key, 0, 0, 'WITHSCORES')
    return math.max(0, tonumber(last[2] or now) - now)
  end

  function k.save(s, now)
    local lease = s.limit.l or YEAR
    if #s.taken > 0 then
      if s.foreign then redis.call('DEL', s.key) end
      s.foreign = nil
      for _, id in ipairs(s.taken) do redis.call('ZADD', s.key, string.format('%.0f', now + lease), id) end
      redis.call('ZREMRANGEBYSCORE', s.key, '-inf', string.format('%.0f', now))
      local ms = math.ceil(lease / 1000) + 2000
      if redis.call('PTTL', s.key) < ms then redis.call('PEXPIRE', s.key, ms) end
      s.taken = {}
    end
    if not s.far then return end
    -- A thousand at a time are put right, so that Redis is not held up.
    local far = redis.call('ZREVRANGEBYSCORE', s.key, '+inf', string.format('(%.0f', now + lease + 1000000), 'LIMIT', 0, 1000)
    for _, id in ipairs(far) do redis.call('ZADD', s.key, string.format('%.0f', now + lease), id) end
  end

  return k
end

local KIND = {tb = 'rate', lb = 'rate', lm = 'rate', fw = 'window', sc = 'counter', sl = 'log', cc = 'permits'}
local LETTER = {r = 'rate', f = 'window', c = 'counter', l = 'lease', q = 'quota', p = 'pool'}

local made = {}
local function kind_named(name)
  local k = made[name]
  if not k then
    k = make[name]()
    made[name] = k
  end
  return k
end

-- limit_check raises where a limit lacks what its algorithm needs. What a limit is
-- made of comes from Redis, where another program may have written it.
local checked = {}
local function limit_check(limit)
  if checked[limit] then return end
  local kind_of = KIND[limit.a]
  local function whole(n, least) return type(n) == 'number' and n >= least and n < 2 ^ 53 and n == math.floor(n) end
  local ok = kind_of and whole(limit.b, (kind_of == 'rate' or kind_of == 'permits') and 0 or 1)
  if ok and kind_of ~= 'permits' then ok = whole(limit.ahead, 0) end
  if ok and kind_of == 'rate' then
    ok = whole(limit.p, 1) and whole(limit.r, 1)
  elseif ok and (kind_of == 'counter' or kind_of == 'log') then
    ok = whole(limit.w, 1)
  elseif ok and kind_of == 'window' and not limit.leased then
    ok = limit.w and whole(limit.w, 1) or (not limit.w and type(limit.c) == 'table' and limit.c[2] ~= nil)
  end
  if not ok then error('limits.lua: a limit of algorithm ' .. tostring(limit.a) .. ' lacks what it needs', 0) end
  checked[limit] = true
end

-- lost_at is when buckets were lost, µs; 0: never. A bucket that is not in Redis was empty then: all
-- its permits were just used. A log starts with a pause of its length instead of as many moments.
local lost_at = 0

-- limit_turn puts a bucket under a limit: another algorithm, another rate, or a
-- clock that was set back.
local function limit_turn(limit, s, now)
  limit_check(limit)
  local alone = KIND[limit.a]
  local name = alone
  if limit.leased then name = name == 'window' and 'quota' or limit.pool and 'pool' or 'lease' end
  if s.kind == nil then
    s.k, s.kind = kind_named(name), name
    s.k.blank(s, now)
    if lost_at > 0 and lost_at <= now and name ~= 'permits' then
      s.k.sync(limit, s, now)
      if name == 'log' then
        s.pause, s.why = math.max(s.pause, lost_at + limit.w), 'what was used is lost'
      elseif not limit.c or window_at(limit, lost_at) then
        s.k.commit(limit, s, now, lost_at, limit.a == 'lb' and 1 or limit.b)
      end
    end
  elseif s.kind ~= name then
    if s.kind ~= alone then
      -- What the old algorithm counts, the new one counts as just used, or as used
      -- at the last slot that was given, before which it gives none.
      local used, base = s.k.owed(limit, s, now)
      s.k, s.kind, s.limit, s.stored = kind_named(alone), alone, limit, false
      s.k.blank(s, now)
      if alone ~= 'permits' then
        s.k.sync(limit, s, now)
        -- A queue without a bound takes over what a year admits, in exact integers.
        local most = limit.b
        if most == 0 then most = math.max(1, math.floor(math.min(YEAR * limit.r, 2 ^ 52) / limit.p)) end
        used = math.min(used, most)
        if used > 0 and (not limit.c or window_at(limit, base)) then
          s.k.commit(limit, s, now, base, used)
          s.mended = true
        end
      end
    end
    if name ~= alone then
      s.k.sync(limit, s, now)
      s.k, s.kind, s.mended = kind_named(name), name, true
      s.k.share(limit, s, now)
    end
  end
  s.k.sync(limit, s, now)
  s.limit = limit
end

function bucket_of(s, now)
  local key = s.key
  local text = redis.pcall('GET', key)
  if not text then return s end
  if type(text) == 'table' then
    local is = redis.call('TYPE', key)
    is = is.ok or is
    if is == 'zset' then return s end -- permits of calls in flight are not permits used
    if is ~= 'list' then not_a_bucket(key) end
    s.k, s.kind = kind_named('log'), 'log'
    s.k.read(s, now)
    return s
  end
  if string.find(text, '!', 1, true) then
    local body, pause, why = string.match(text, '^(.-) !(%d+) (.*)$')
    pause = natural(pause or '')
    if pause then text, s.pause, s.why = body, pause, why end
  end
  local is = LETTER[string.sub(text, 1, 1)] or 'rate'
  if not kind_named(is).parse(s, text, now) then not_a_bucket(key) end
  s.k, s.kind = kind_named(is), is
  return s
end

local function limit_open(limit, key, now)
  limit_check(limit)
  local s = {key = key, pause = 0, why = ''}
  if KIND[limit.a] == 'permits' then return s end
  return bucket_of(s, now)
end

local function limit_earliest(limit, s, now, t, n)
  if s.limit ~= limit then limit_turn(limit, s, now) end
  return s.k.earliest(limit, s, now, t, n)
end

local function limit_commit(limit, s, now, t, n, id)
  if s.limit ~= limit then limit_turn(limit, s, now) end
  s.k.commit(limit, s, now, t, n, id)
  s.dirty = true
end

local function limit_mark(s) return s.mark or 0 end

local function limit_refund(limit, s, now, t, n, mark)
  if s.limit ~= limit then limit_turn(limit, s, now) end
  local done = s.k.refund(limit, s, now, t, n, mark)
  s.dirty = s.dirty or done
  return done
end

local function limit_charge(limit, s, now, n)
  if s.limit ~= limit then limit_turn(limit, s, now) end
  s.k.charge(limit, s, now, n)
  s.dirty = true
end

local function limit_place(limit, s, now, t, n)
  if s.limit ~= limit then limit_turn(limit, s, now) end
  return s.k.place and s.k.place(limit, s, now, t, n) or now
end

local function limit_left(limit, s, now)
  if s.limit ~= limit then limit_turn(limit, s, now) end
  if s.pause > now then return 0 end
  return s.k.left(limit, s, now)
end

local function limit_reset(limit, s, now)
  if s.limit ~= limit then limit_turn(limit, s, now) end
  return s.k.reset(limit, s, now)
end

local function limit_save(s, now)
  if not (s.dirty or s.mended) then return end
  s.k.save(s, now)
  s.dirty, s.mended = nil, nil
end

-- limit_read makes a limit of the six arguments from `at` on that Go's
-- Limiter.specArgs wrote: a, p, r, b, ahead or l, and code, w or the calendar.
local function limit_read(at)
  local limit = {a = ARGV[at], p = tonumber(ARGV[at + 1]), r = tonumber(ARGV[at + 2]), b = tonumber(ARGV[at + 3])}
  local span, windows = tonumber(ARGV[at + 4]), ARGV[at + 5]
  if limit.a == 'cc' then limit.l = span else limit.ahead = span end
  if KIND[limit.a] == 'rate' then
    limit.code = windows ~= '' and windows
  elseif windows ~= '' then
    limit.w = tonumber(windows)
    if not limit.w then
      limit.c = {}
      for start in string.gmatch(windows, '%d+') do limit.c[#limit.c + 1] = tonumber(start) end
    end
  end
  return limit
end

-- limit_clock is the caller's clock if it sent one, which tests do.
local function limit_clock(sent)
  if sent ~= '' then return tonumber(sent) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
