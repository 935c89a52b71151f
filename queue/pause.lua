-- pause.lua: hold a scope of a queue, or let it go.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   scope: an escaped tenant, '*' or 'k:'<kind>
-- ARGV[3]   until_us: 9e15 until it is resumed; 0: resume
-- ARGV[4]   "by reason"
-- ARGV[5]   audit entry
-- Returns   the pause before and after, as "until_us by reason"; '' for none
local pauses, scope, until_us = headgate .. 'pauses', ARGV[2], tonumber(ARGV[3])
local before = redis.call('HGET', pauses, scope) or ''
if before ~= '' and tonumber(string.match(before, '^%d+') or 0) <= clock() then before = '' end
local after = ''
if until_us > 0 then
  after = int(until_us) .. ' ' .. ARGV[4]
  -- The later end wins: a provider that asked for silence still wants it.
  if before ~= '' and tonumber(string.match(before, '^%d+')) > until_us then after = before end
  redis.call('HSET', pauses, scope, after)
else
  redis.call('HDEL', pauses, scope)
end
if before ~= '' or after ~= '' then
  redis.call('LPUSH', headgate .. 'audit', ARGV[5])
  redis.call('LTRIM', headgate .. 'audit', 0, 9999)
end
return {before, after}
