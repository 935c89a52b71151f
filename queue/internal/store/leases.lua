-- leases.lua: what a bucket of a leased limit tells the ledger, and takes from it.
--
-- A library behind limits.lua. internal/partition has the rules: this is its Holder, whose state is the
-- bucket.

-- lease_over reports whether a quota or a pool may spend nothing any more of what it was leased last.
local function lease_over(s, now) return now + s.shift >= s.ends end

-- quota_keep is lease_keep for a quota: it returns how many permits the bucket keeps, used ones included,
-- and how many it had. What was used beyond that is the rest of the quota's. What is too little for the next
-- call is enough for one of another partition.
local function quota_keep(s, now, permits, least)
  if math.min(s.n, s.keep) - s.spent < least then permits = 0 end
  local keep = math.min(s.keep, permits + s.spent)
  s.dirty = s.dirty or keep < s.keep
  s.keep = keep
  keep = math.max(s.spent, math.min(s.n, keep))
  return {keep, s.n}, lease_over(s, now) and 0 or keep - s.spent
end

-- pool_keep is lease_keep for a pool. It also returns how many permits calls spent that have left, how many spent ones
-- came back, since when some did that the ledger may not know of, and the ledger's time.
local function pool_keep(s, now, permits, least)
  local keep, have = quota_keep(s, now, permits, least)
  local spent = s.spent
  for _, one in ipairs(s.leaving) do
    if one.till > now + s.shift then spent = spent - one.n end
  end
  s.at = now
  keep[3], keep[4], keep[5], keep[6] = spent, s.back, s.since, now + s.shift
  return keep, have
end

-- calls_keep is lease_keep for a concurrency limit of which `held` calls are under way and `calls` could be.
-- More than the partition's part of the limit is given back as calls end. Of calls that began before the limit was
-- leased, the ledger learns first.
local function calls_keep(s, held, calls)
  if s.version == 0 then return {held, 0}, 0 end
  if s.n > 0 then
    local keep = math.min(s.keep, math.max(held, math.min(calls, s.share)))
    s.dirty = s.dirty or keep < s.keep
    s.keep = keep
  end
  local keep = math.min(s.n, s.keep)
  return {keep, s.n}, keep
end

-- lease_keep gives back what is more than `permits`, for ever. It returns the spans that the bucket
-- keeps, four numbers each: where it begins and ends, each in µs and units; and how many permits they have.
-- `least` is what the next call takes.
local function lease_keep(s, now, permits, least)
  if s.kind == 'quota' then return quota_keep(s, now, permits, least) end
  if s.kind == 'pool' then return pool_keep(s, now, permits, least) end
  local have, keep = 0, {}
  now = now + s.shift
  for _, span in ipairs(s.spans) do
    local whole, frac = span.next, span.frac
    if whole + (frac > 0 and 1 or 0) < now then whole, frac = now, 0 end
    local left = math.max(0, math.floor(((span.keep - whole) * span.r + span.keep_frac - frac) / span.p))
    local rest = math.max(0, permits - have)
    if left > rest then
      local units = frac + rest * span.p
      local more = math.floor(units / span.r)
      span.keep, span.keep_frac, left, s.dirty = whole + more, units - more * span.r, rest, true
    end
    have = have + left
    if span.keep > now - 1000000 then -- else it is over, and would keep an idle partition asking
      local n = #keep
      keep[n + 1], keep[n + 2] = span.from, span.from_frac
      keep[n + 3], keep[n + 4] = span.keep, span.keep_frac
    end
  end
  return keep, have
end

-- lease_accept takes an answer of the ledger: the part of the limit that the bucket gets and how much of
-- what can be leased is, in millionths, and what it has: spans by time, seven numbers each: p, r, b, from,
-- frac, end, frac; of a quota: n, from, end; of a pool: n, end, and what the ledger knows that came back. Old
-- answers change nothing.
local function lease_accept(s, version, share, used, numbers)
  if version <= s.version then return end
  s.version, s.share, s.used, s.dirty = version, share, used, true
  if s.kind == 'quota' then
    local n, from, ends = unpack(numbers)
    if from ~= s.from or ends ~= s.ends then s.spent = 0 end
    s.n, s.keep, s.from, s.ends = n, n, from, ends
    return
  end
  if s.kind == 'pool' then
    local n, ends, back = unpack(numbers)
    s.n, s.keep, s.ends = n, n, ends
    if back == s.back then s.since = 0 end
    return
  end
  local function name(from, frac) return string.format('%.0f %.0f', from, frac) end
  local known = {}
  for _, span in ipairs(s.spans) do known[name(span.from, span.from_frac)] = span end
  s.spans = {}
  for i = 1, #numbers, 7 do
    local p, r, b, from, from_frac, keep, keep_frac = unpack(numbers, i, i + 6)
    local old = known[name(from, from_frac)]
    s.spans[#s.spans + 1] = {
      p = p, r = r, b = b, from = from, from_frac = from_frac, keep = keep, keep_frac = keep_frac,
      next = old and old.next or from, frac = old and old.frac or from_frac,
    }
  end
end
