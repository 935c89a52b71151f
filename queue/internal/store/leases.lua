-- leases.lua: what a bucket of a leased limit tells the ledger, and takes from it.
--
-- A library behind limits.lua. internal/partition has the rules: this is its Holder, whose state is the
-- bucket.

-- lease_keep gives back what is more than `permits`, for ever, and returns the spans that the bucket
-- keeps, and how many permits these have.
local function lease_keep(s, now, permits)
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
    local n = #keep
    keep[n + 1], keep[n + 2] = span.from, span.from_frac
    keep[n + 3], keep[n + 4] = span.keep, span.keep_frac
  end
  return keep, have
end

-- lease_accept takes an answer of the ledger: the part of the limit that the bucket gets and how much of
-- what can be leased is, in millionths, and spans by time, seven numbers each: p, r, b, from, frac, end,
-- frac. Old answers change nothing.
local function lease_accept(s, version, share, used, numbers)
  if version <= s.version then return end
  s.share, s.used = share, used
  local function name(from, frac) return string.format('%.0f %.0f', from, frac) end
  local known = {}
  for _, span in ipairs(s.spans) do known[name(span.from, span.from_frac)] = span end
  s.version, s.spans, s.dirty = version, {}, true
  for i = 1, #numbers, 7 do
    local p, r, b, from, from_frac, keep, keep_frac = unpack(numbers, i, i + 6)
    local old = known[name(from, from_frac)]
    s.spans[#s.spans + 1] = {
      p = p, r = r, b = b, from = from, from_frac = from_frac, keep = keep, keep_frac = keep_frac,
      next = old and old.next or from, frac = old and old.frac or from_frac,
    }
  end
end
