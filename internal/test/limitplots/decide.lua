-- decide.lua: one decision on the caller's clock, for what limitplots shows.
--
-- KEYS[1]   bucket
-- ARGV[1]   now_us: the caller's clock
-- ARGV[2]   within: longest delay that is accepted, µs; 0: now or not at all
-- ARGV[3]   id of the call, for concurrency limits
-- ARGV[4..] six for the limit (limit_read)
-- Returns   {taken 1|0, µs until the slot}
local now, within, id, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], limit_read(4)
local b = limit_open(limit, KEYS[1], now)
local t = limit_earliest(limit, b, now, now, 1)
if t - now > within or (within > 0 and limit_place(limit, b, now, t, 1) > now) then return {0, t - now} end
limit_commit(limit, b, now, t, 1, id)
limit_save(b, now)
return {1, t - now}
