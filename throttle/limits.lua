-- limits.lua: when does a limit admit a call, and what is left of it afterwards?
--
-- A library, not a script: every script of ours is this text and a body.
-- For each algorithm it has two pure functions over the state of one bucket (a
-- string, or false for a bucket that nobody used yet); the body reads and
-- writes the keys, so one script may look at a bucket many times for one GET.
--
--   limit_earliest(limit, state, now, t, n)  the first µs >= t at which n permits
--                                            are admitted; nil: never. Writes nothing.
--   limit_commit(limit, state, now, t, n)    the state after n permits were taken
--                                            at t, and its time to live in ms.
--   limit_refund(limit, state, t, n)         the state as if the n permits of t had
--                                            not been taken, or nil where that cannot
--                                            be said: others were given since.
--   limit_mend(limit, state, now)            the state and its time to live if it has
--                                            to be written anew, else nil: the rate was
--                                            changed since, or the clock was set back.
--                                            What is owed would drain at the old rate
--                                            until the next commit, or not at all.
--
-- limit is a table of numbers, but for `a`:
--   a      'tb' token bucket | 'lb' leaky bucket, shaping
--          'lm' leaky bucket, policing (a meter) | 'fw' fixed window
--   p, r   one permit is p units, r units flow back per µs, p/r in lowest terms:
--          thirds and sevenths stay exact, nothing drifts          (tb, lb, lm)
--   b      burst (tb), capacity (lm; lb: largest cost, 0 = any), permits a window (fw)
--   w      length of a window, µs; windows are aligned to the epoch  (plain fw)
--   c      starts of the calendar windows around now, µs, ascending  (calendar fw)
--   ahead  how far beyond now slots are granted, µs. What lies further away
--          can only come from a clock that was set back.
--
-- now is Redis's clock in µs; t >= now is a moment that may lie in the future.
-- All numbers are integers below 2^53; limits that would leave that range are
-- refused when they are made.
--
-- State of tb, lb, lm: "tat frac p r last at": the theoretical arrival time of the
-- next permit in µs, the rest of it in units (0 <= frac < r), the p and r it was
-- written under, so that a changed rate is converted and not misread, the latest
-- moment given, and when this was written.
-- State of fw: "start used last at": the latest window used, the permits used in
-- it, the moment of the last one, and when it was given.

-- rate_convert is the time that a debt of `whole` µs and `frac` units at p and r
-- takes at the limit's rate: never less, and exact where its products are.
local function rate_convert(limit, whole, frac, p, r)
  local common, rest = p, limit.p
  while rest > 0 do common, rest = rest, common % rest end
  local units = whole * r + frac
  local permits = math.floor(units / p)
  local part = (units - permits * p) * (limit.p / common)
  if math.max(units, permits * limit.p, part) >= 2 ^ 52 then
    -- More than 71 years would leave the integers, and is never all the same.
    return math.min(math.ceil((whole + 1) * (r / p) * (limit.p / limit.r)), 2 ^ 51), 0
  end
  units = permits * limit.p + math.ceil(part / (p / common))
  whole = math.floor(units / limit.r)
  return whole, units - whole * limit.r
end

local function rate_read(limit, state, now)
  if not state then return now, 0, true, now end
  local tat, frac, p, r, last = string.match(state, '^(%d+) (%d+) (%d+) (%d+) (%d+) %d+$')
  if not tat then return now, 0, true, now end
  tat, frac, p, r, last = tonumber(tat), tonumber(frac), tonumber(p), tonumber(r), tonumber(last)
  if tat < now then return now, 0, true, now end
  if p ~= limit.p or r ~= limit.r then
    -- What is owed counts in permits and keeps its number under the new rate.
    -- Slots that were already given stand no further ahead than `ahead`, and a
    -- faster rate must not give theirs a second time: it holds from the last one on.
    last = math.min(math.max(last, now), now + limit.ahead)
    local owed, part = rate_convert(limit, tat - now, frac, p, r)
    local after, rest = 0, 0
    if tat >= last then after, rest = rate_convert(limit, tat - last, frac, p, r) end
    tat, frac = now + owed, part
    if last + after > tat or (last + after == tat and rest > frac) then tat, frac = last + after, rest end
  end
  local most = now + limit.ahead + math.ceil(math.max(limit.b, 1) * limit.p / limit.r)
  if limit.b > 0 and tat > most then return most, 0, false, last end
  return tat, frac, false, last
end

-- rate_slack is how many permits may be ahead of the rate when n more go.
local function rate_slack(limit, n)
  if limit.a == 'lb' then return 0 end
  return limit.b - n
end

local function rate_earliest(limit, state, now, t, n)
  if limit.b > 0 and n > limit.b then return nil end
  local tat, frac, idle = rate_read(limit, state, now)
  if idle then return t end
  -- tat - slack * p / r, rounded up: a moment too early would be the caller's gain.
  local units = rate_slack(limit, n) * limit.p - frac
  return math.max(t, tat - math.floor(units / limit.r))
end

local function rate_write(limit, tat, frac, last, now)
  -- PX counts from the command's clock, which is older than TIME, and an imitation
  -- of Redis may age its keys by a second at a time: two seconds over.
  return string.format('%.0f %.0f %.0f %.0f %.0f %.0f', tat, frac, limit.p, limit.r, last, now),
    math.ceil((tat - now) / 1000) + 2000
end

local function rate_commit(limit, state, now, t, n)
  local tat, frac, _, last = rate_read(limit, state, now)
  -- An earliest moment is rounded up to a whole µs; the part that was rounded
  -- away is not idle time and stays credited, or 9,973/s would lose 0.7 %.
  if tat + (frac > 0 and 1 or 0) < t then tat, frac = t, 0 end
  local units = frac + n * limit.p
  local whole = math.floor(units / limit.r)
  tat, frac = tat + whole, units - whole * limit.r
  return rate_write(limit, tat, frac, math.max(last, t), now)
end

-- rate_refund takes back what was given last. Had more been given since, the
-- permit would come back at a moment that is another's already.
local function rate_refund(limit, state, t, n)
  local tat, frac, p, r, last, at = string.match(state, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not tat or tonumber(last) ~= t or tonumber(p) ~= limit.p or tonumber(r) ~= limit.r then return nil end
  local units = tonumber(frac) - n * limit.p
  local whole = math.floor(units / limit.r)
  return string.format('%.0f %.0f %.0f %.0f %.0f %s', tonumber(tat) + whole, units - whole * limit.r, limit.p, limit.r, t, at)
end

-- rate_mend keeps what was owed, in permits, and lets it drain from now on at the
-- rate of now.
local function rate_mend(limit, state, back, now)
  local tat, frac, p, r, last = string.match(state, '^(%d+) (%d+) (%d+) (%d+) (%d+) %d+$')
  if not tat or (back == 0 and tonumber(p) == limit.p and tonumber(r) == limit.r) then return nil end
  last = tonumber(last) - back
  local idle
  tat, frac, idle = rate_read(limit, string.format('%.0f %s %s %s %.0f %.0f', tonumber(tat) - back, frac, p, r, last, now), now)
  if idle then return nil end
  return rate_write(limit, tat, frac, math.max(last, now), now)
end

-- limit_full: n more permits at t are too many for the queue in front of a leaky
-- bucket, which is what waits already, and these.
local function limit_full(limit, state, now, t, n)
  if limit.a ~= 'lb' or limit.b == 0 then return false end
  local tat, frac = rate_read(limit, state, now)
  local units = (t - now) * limit.r
  -- A slot is rounded up to a whole µs; what waits before it is not.
  if tat + (frac > 0 and 1 or 0) == t then units = (tat - now) * limit.r + frac end
  return units + n * limit.p > limit.b * limit.p
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

local function window_read(limit, state)
  if not state then return 0, 0, 0 end
  local start, used, last = string.match(state, '^(%d+) (%d+) (%d+) %d+$')
  if not start then return 0, 0, 0 end
  return tonumber(start), tonumber(used), tonumber(last)
end

-- window_used is what counts against the window [start, following): everything
-- in the stored window if its last permit fell into this one, which is exact
-- while the windows stay the same and errs against the caller when their length
-- changed. A stored window in the future is a clock that was set back.
local function window_used(start, following, stored, used, last)
  if stored == start or (last >= start and last < following) then return used end
  return 0
end

local function window_earliest(limit, state, now, t, n)
  if n > limit.b then return nil end
  local stored, used, last = window_read(limit, state)
  -- One window is remembered: once a later one was used, none before it is given.
  -- Further ahead than slots go is a clock that was set back.
  if stored > t and stored <= now + limit.ahead then t = stored end
  local start, following = window_at(limit, t)
  -- Beyond the calendar that was passed nothing is granted, only estimated.
  if not start then return t end
  if window_used(start, following, stored, used, last) + n > limit.b then return following end
  return t
end

local function window_write(start, used, last, following, now)
  return string.format('%.0f %.0f %.0f %.0f', start, used, last, now), math.ceil((following - now) / 1000) + 2000
end

local function window_commit(limit, state, now, t, n)
  local stored, used, last = window_read(limit, state)
  local start, following = window_at(limit, t)
  if not start then error('limits.lua: no calendar window holds ' .. string.format('%.0f', t)) end
  used = window_used(start, following, stored, used, last) + n
  return window_write(start, used, t, following, now)
end

local function window_refund(limit, state, t, n)
  local stored, used, last = window_read(limit, state)
  local start = window_at(limit, t)
  if stored ~= start or used < n then return nil end
  return string.format('%.0f %.0f %.0f %s', stored, used - n, last, string.match(state, '%d+$'))
end

-- window_mend counts what was used against the window that the clock shows now.
local function window_mend(limit, state, back, now)
  if back == 0 then return nil end
  local _, used, last = window_read(limit, state)
  last = last - back
  local start, following = window_at(limit, last)
  return window_write(start or last, used, last, following or last, now)
end

local function limit_earliest(limit, state, now, t, n)
  if limit.a == 'fw' then return window_earliest(limit, state, now, t, n) end
  return rate_earliest(limit, state, now, t, n)
end

local function limit_commit(limit, state, now, t, n)
  if limit.a == 'fw' then return window_commit(limit, state, now, t, n) end
  return rate_commit(limit, state, now, t, n)
end

local function limit_refund(limit, state, t, n)
  if not state then return nil end
  if limit.a == 'fw' then return window_refund(limit, state, t, n) end
  return rate_refund(limit, state, t, n)
end

local function limit_mend(limit, state, now)
  if not state then return nil end
  -- Within a second it may be a wobble, which costs a second at most.
  local back = (tonumber(string.match(state, ' (%d+)$')) or 0) - now
  if back <= 1000000 then back = 0 end
  if limit.a == 'fw' then return window_mend(limit, state, back, now) end
  return rate_mend(limit, state, back, now)
end

-- limit_left is how many permits could go at once at `now`, never negative.
local function limit_left(limit, state, now)
  if limit.a == 'fw' then
    local stored, used, last = window_read(limit, state)
    local start, following = window_at(limit, now)
    if not start then return 0 end
    if stored > now and stored <= now + limit.ahead then return 0 end
    return math.max(0, limit.b - window_used(start, following, stored, used, last))
  end
  local tat, frac, idle = rate_read(limit, state, now)
  local most = math.max(limit.b, 1)
  if limit.a == 'lb' then most = 1 end
  if idle then return most end
  return math.max(0, most - math.ceil(((tat - now) * limit.r + frac) / limit.p))
end
