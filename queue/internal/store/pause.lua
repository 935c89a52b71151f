-- pause.lua: pause a scope of a queue, or resume it.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   scope: an escaped tenant, '*' or 'k:'<kind>; to resume also the scope of a hold
-- ARGV[3]   until_us: 9e15 until it is resumed; 0: resume
-- ARGV[4]   reason
-- ARGV[5]   audit entry; '' if a provider's answer in another partition of the queue pauses it
-- ARGV[6]   calendars as JSON, '' for none
-- ARGV[7]   share of the audit that the entry is in
-- Returns   the pause before and after, as "until_us by reason", '' for none; and 0, or 1 if nothing was done
--           because the tenant has left for another partition
-- Bound: one scope, and either the shared buckets or those of one tenant.
-- Full memory: it runs (allow-oom). A resume deletes an entry and lets jobs go. A pause adds one of at
-- most 1 kB for each scope, so that harm can be stopped in a full Redis, too.
local now = clock()
local pauses, scope, until_us = headgate .. 'pauses', ARGV[2], tonumber(ARGV[3])
set_calendars(ARGV[6])
local tenant = scope_tenant(scope)
local state
if tenant then state = read('HGET', headgate .. 'moves', tenant) end
if state == 'gone' or string.find(state or '', '^left ') then return {'', '', 1} end

-- A pause from the provider stops buckets, too.
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

local function in_force(of)
  local text = read('HGET', pauses, of) or ''
  if pause_ends_at(text) <= now and not hold_read(text) then text = '' end
  return text
end

local before = in_force(scope)
local after = ''
if until_us > 0 then
  after = pause(scope, until_us, ARGV[5] == '' and 'provider' or 'operator', ARGV[4])
else
  if not string.find(scope, ':', 1, true) then start_buckets() end
  pause_end(scope)
  -- The account of a kind may have a hold, too.
  local kind = scope_kind(scope)
  local account = account_scope(kind or '')
  if kind and in_force(account) ~= '' then
    if before == '' then before = in_force(account) end
    pause_end(account)
  end
end
if ARGV[5] ~= '' and (before ~= '' or after ~= '') then audit_add(ARGV[7], ARGV[5]) end
return {before, after, 0}
