-- pause.lua: hold a scope of a queue, or let it go.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   scope: an escaped tenant, '*' or 'k:'<kind>
-- ARGV[3]   until_us: 9e15 until it is resumed; 0: resume
-- ARGV[4]   reason
-- ARGV[5]   audit entry
-- ARGV[6]   calendars as JSON, '' for none
-- Returns   the pause before and after, as "until_us by reason"; '' for none
local now = clock()
local pauses, scope, until_us = headgate .. 'pauses', ARGV[2], tonumber(ARGV[3])
set_calendars(ARGV[6])

-- For so long workers find a resume by its number. One that was away for longer reads
-- all pauses.
local RESUME_KEPT_US = 3600000000

-- A provider's pause stops buckets, too.
local function start_buckets()
  local list = shared_limits(now)
  if scope ~= '*' then
    list = {}
    for _, entry in ipairs(lane_limits(scope, now).own) do
      if entry.tenants then list[#list + 1] = entry end
    end
  end
  for _, entry in ipairs(list) do
    local b = entry.spec and bucket(entry, now)
    if b and b.pause > now then
      b.pause = now
      limit_left(entry.spec, b, now)
      b.mended = true
    end
  end
end

local before = read('HGET', pauses, scope) or ''
if tonumber(string.match(before, '^%d+') or 0) <= now then before = '' end
local after = ''
if until_us > 0 then
  after = pause(scope, until_us, 'operator', ARGV[4])
else
  if string.sub(scope, 1, 2) ~= 'k:' then start_buckets() end
  plan('HDEL', pauses, scope)
  note_pause(scope, now + RESUME_KEPT_US)
end
if before ~= '' or after ~= '' then
  plan('LPUSH', headgate .. 'audit', ARGV[5])
  plan('LTRIM', headgate .. 'audit', 0, 9999)
end
return {before, after}
