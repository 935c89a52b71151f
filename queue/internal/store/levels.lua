-- levels.lua: what the rate limits of the whole queue, or those per tenant, admit now. It writes only faults.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   calendars as JSON, '' for none
-- ARGV[3]   tenant, '' for the limits of the whole queue
-- Returns   {now, limits}
--   limits  for each: name, adaptive 1|0, adapted (the part of its rate to which it is lowered, above 0 to 1),
--           rate (permits a second, lowered or as far as it has grown), left and capacity (permits in its bucket now, and
--           in a full one; -1 if they are with partitions or queues that share the limit), next_us (when it
--           admits a permit)
local now = clock()
save_buckets = nil -- buckets are only read
set_calendars(ARGV[2])
local tenant, limits = ARGV[3], {}
local known = lane_limits(tenant, now)
for _, entry in ipairs(tenant == '' and known.shared or known.own) do
  if entry.spec and (tenant == '' or entry.tenants) then
    local spec, b, adapted, left, most = entry.spec, bucket(entry, now), 1, -1, -1
    local window = spec.w or spec.c and spec.c[2] and spec.c[2] - spec.c[1]
    if entry.adaptive then adapted = parts_now(entry.adapts, now) / adapting.parts end
    if not spec.leased then
      left, most = limit_left(spec, b, now), spec.a == 'lb' and 1 or math.max(spec.b, 1) -- of a leaky bucket one goes at a time
    end
    limits[#limits + 1] = {
      entry.name, entry.adaptive and 1 or 0, string.format('%.6f', adapted),
      string.format('%.12f', 1000000 * (window and spec.b / window or spec.r / spec.p)),
      string.format('%.6f', left), int(most), int(limit_earliest(spec, b, now, now, 1)),
    }
  end
end
return {int(now), limits}
