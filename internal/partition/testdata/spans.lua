-- spans.lua: what a bucket does with the steps of a ledger, and with those of a holder's span.
--
-- KEYS[1]   bucket
-- ARGV[1]   limit: a, p, r, b, ahead_us, code, as limit_read has it
-- ARGV[7..] four for each step: now, from, n, first: the call is accounted for `from` µs after
--           now at the earliest; first 1: at that moment, whatever the limit says
-- Returns   for each step: earliest, latest, and the bucket after it
local limit = limit_read(1)
local reply = {}
for at = 7, #ARGV, 4 do
  local now, from, n, first = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  local bucket = limit_open(limit, KEYS[1], now)
  local earliest = limit_earliest(limit, bucket, now, now, math.min(n, limit.b > 0 and limit.b or n))
  local latest = first == '1' and now + from or math.max(earliest, now + from)
  limit_commit(limit, bucket, now, latest, n)
  limit_save(bucket, now)
  local r = #reply
  reply[r + 1], reply[r + 2], reply[r + 3] = string.format('%.0f', earliest), string.format('%.0f', latest), string.format('%.0f %.0f', bucket.tat, bucket.frac)
end
return reply
