-- formats.lua: the texts inside Redis values. Each has one encoder and one decoder here.
--
-- A library behind asynq.lua. docs/redis.md describes each format, and names its reader
-- in Go. NAME_write returns a text, and NAME_read reads it. The comment of each says what
-- NAME_read does with a text that it does not understand. The lines of a job's log and
-- the entries of events are in record.lua, buckets in limits.lua, asynq's messages in
-- message.lua.

-- escape is throttle.Escape. plain makes a name safe that may be escaped already: a group
-- of asynq's own client can have any name.
local function escape(text)
  return (string.gsub(text, '[^a-zA-Z0-9._~@-]', function(c) return string.format('%%%02X', string.byte(c)) end))
end

local function plain(text)
  if not string.find(text, '[^a-zA-Z0-9._~@%%-]') then return text end
  return (string.gsub(text, '[^a-zA-Z0-9._~@%%-]', escape))
end

-- A position is a score in a lane, band * BAND + µs. The band is 0 for high, 1 for
-- normal, 2 for low priority; within a band it is first in, first out.
local BAND = 2 ^ 51 -- µs until 2041, and three bands stay below 2^53
local function band_of(position) return math.floor(position / BAND) end

-- Attributes of a job are "kind=KIND;name=value;...", escaped.
local function attributes_write(kind, more) return 'kind=' .. kind .. ';' .. more end

-- A lane's name is "TENANT;name=value;...", escaped. lane_of joins a tenant with those
-- attributes of its job that are listed in names.
local function lane_of(names, tenant, attributes)
  local lane = tenant
  attributes = ';' .. attributes
  for i = 1, #names do
    local value = string.match(attributes, ';' .. names[i] .. '=([^;]*)')
    if value then lane = lane .. ';' .. names[i] .. '=' .. value end
  end
  return lane
end

-- lane_values returns the tenant and the attributes in a lane's name, each safe to be
-- part of a key.
local function lane_values(lane)
  local values = {}
  for name, value in string.gmatch(lane, ';([^=;]+)=([^;]*)') do values[name] = plain(value) end
  values.tenant = plain(string.match(lane, '^[^;]*'))
  return values
end

local function tenant_of(lane) return plain(string.match(lane, '^[^;]*')) end

-- endpoint_of returns the receiver whose jobs a lane holds, and kind_of their kind; nil
-- if the lane's name has none.
local function endpoint_of(lane)
  local endpoint = string.match(lane, ';endpoint=([^;]*)')
  if endpoint then endpoint = plain(endpoint) end
  return endpoint
end

local function kind_of(lane) return string.match(lane, ';kind=([^;]*)') end

-- lane_of_kind returns the name under which the limits of a lane are found whose own name
-- has no kind: a group of asynq's own client.
local function lane_of_kind(lane, kind) return lane .. ';kind=' .. kind end

-- hg_slot is "earliest latest position": the call may begin from `earliest` to `latest`
-- (µs; 0: no end), and the job returns to this position in its lane. A slot that was given
-- back has a fourth number, the time of that: if the clock shows less, it was set back.
-- slot_read returns 0, 0, nil for nil, and raises if the text is not a slot.
local function slot_read(text)
  if not text then return 0, 0, nil end
  local e, c, position, more = string.match(text, '^(%d+) (%d+) (%d+)(.*)$')
  local back = more ~= '' and string.match(more or '', '^ (%d+)$')
  if not e or (more ~= '' and not back) or math.max(#e, #c, #position, #(back or '')) > 16 then error(string.format('%q', text) .. ' is no slot', 0) end
  return tonumber(e), tonumber(c), tonumber(position), tonumber(back or 0)
end

local function slot_write(e, c, position, back)
  if not (e >= 0 and e < 1e16 and c >= 0 and c < 1e16 and position >= 0 and position < 1e16) then error('a slot is out of range', 0) end
  return format(back and '%d %d %d %d' or '%d %d %d', e, c, position, back)
end

-- hg_owner is "WORKER:RUN": the worker that holds a job, and the number of the run.
local function owner_write(worker, run) return format('%s:%d', worker, run) end

-- hg_progress is "OWNER percent at_us text": what the run of that owner reported last.
local function progress_write(owner, percent, at, text) return format('%s %d %d %s', owner, percent, at, text) end

-- hg_released is "at_us limit": when a job was released, and the name of the limit that held
-- it until then, '' for none. released_read returns nil if the text has another form.
local function released_write(at, limit) return format('%d %s', at, limit) end

local function released_read(text)
  local at, limit = string.match(text or '', '^(%d+) (.*)$')
  return tonumber(at), limit
end

-- hg_first is "at_us OWNER": when the first run began whose call may have been made, and
-- the owner of that run. first_read returns the moment, 0 for nil, and nil if the text
-- has another form.
local function first_write(at, owner) return int(at) .. ' ' .. owner end

local function first_read(text)
  if not text then return 0 end
  return tonumber(string.match(text, '^%d+'))
end

-- hg_lost is "OWNER=n OWNER=n ...": the runs that recovery took from their workers,
-- oldest first. n is '1' if the run counted as a crash, '2' if other calls ran beside it,
-- and '0' if it was not counted. lost_read returns a list of {owner, n}.
local MAX_LOST = 8
local function lost_read(text)
  local runs = {}
  for owner, n in string.gmatch(text or '', '(%S+)=(%d)') do runs[#runs + 1] = {owner, n} end
  return runs
end

local function lost_write(runs)
  local words = {}
  for i = math.max(1, #runs - MAX_LOST + 1), #runs do words[#words + 1] = runs[i][1] .. '=' .. runs[i][2] end
  return table.concat(words, ' ')
end

-- hg_permits is "KEY KEY ...": the keys of the concurrency limits of which the job holds
-- a permit. permits_read iterates over them.
local function permits_write(keys) return table.concat(keys, ' ') end

-- is_direct reports whether a permit is that of a call without a job, whose id begins with '*', as that of no
-- job of Headgate does. Nobody recovers such a permit; it lapses.
local function is_direct(id) return string.sub(id, 1, 1) == '*' end

local function permits_read(text) return string.gmatch(text or '', '%S+') end

-- hg_marks is "limit=mark;...": the slots of metered limits whose costs are corrected
-- after the call. marks_read returns the marks by limit.
local function marks_add(text, limit, mark) return text .. limit .. '=' .. int(mark) .. ';' end

local function marks_read(text)
  local marks = {}
  for name, mark in string.gmatch(text or '', '([^=;]+)=(%d+)') do marks[name] = tonumber(mark) end
  return marks
end

-- hg_cost is a number, and hg_costs "unit=n;...", as Go writes them: how many permits a
-- job takes of limits without a unit, and of limits of other units. costs_read returns
-- them by unit, and raises if one is not a number.
local ONE = {[''] = 1}
local function cost_read(text)
  local n = string.find(text, '^%d+$') and tonumber(text)
  if not n or n >= 2 ^ 53 then error(string.format('%q', text) .. ' is no cost', 0) end
  return n
end

local function costs_read(cost, more)
  if not more or more == '' then
    if not cost or cost == '1' then return ONE end
    return {[''] = cost_read(cost)}
  end
  local costs = {[''] = cost_read(cost or '1')}
  for unit, n in string.gmatch(more, '([^=;]+)=(%d+)') do costs[unit] = cost_read(n) end
  return costs
end

-- costs_taken returns what a call takes, "COST;unit=n;...".
local function costs_taken(cost, more)
  cost = cost or '1'
  return (more or '') ~= '' and cost .. ';' .. more or cost
end

-- Outcomes in the events of calls that only calls.lua reads: a call without a job, which has a slot; and
-- a run whose worker died, which may have made its call.
local DIRECT, LOST = 'direct', 'lost'

-- A run is "outcome answer attempt called_us took_us again_us kept taken attributes reason": what
-- happened in a run of a job, as settle.lua receives it and events keep it. taken and attributes are
-- '' unless the queue counts calls (calls.lua). run_read returns nil if the text has another form.
-- run_kept reports whether the job's log keeps the run.
local function run_write(run)
  return table.concat({
    run.outcome, run.answer or '', run.attempt or 0, int(run.called or 0), int(run.took or 0), int(run.again or 0), run.kept and 1 or 0,
    run.taken or '', run.attributes or '', run.reason or '',
  }, ' ')
end

local function run_read(text)
  local outcome, answer, attempt, called, took, again, kept, reason =
    string.match(text, '^(%l+) (%l*) (%d+) (%d+) (%d+) (%d+) (%d) [^ ]* [^ ]* (.*)$')
  if not outcome then return nil end
  return {
    outcome = outcome, answer = answer, attempt = attempt, called = tonumber(called), took = tonumber(took),
    again = tonumber(again), kept = kept == '1', reason = reason,
  }
end

local function run_kept(text) return string.find(text, '^%l+ %l* %d+ %d+ %d+ %d+ 1 ') ~= nil end

-- adapt:<limit>:<values> holds "low high since_us told at_us" of a bucket of an adaptive limit, in 1024ths of its rate: between
-- which levels it looks for what the provider admits, and since when; and what the provider says that it admits, and
-- when it said so. adapt_read returns nil if the text has another form.
local function adapt_write(a)
  return int(a.low) .. ' ' .. int(a.high) .. ' ' .. int(a.since) .. ' ' .. int(a.told) .. ' ' .. int(a.at)
end

local function adapt_read(text)
  local low, high, since, told, at = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not low then return nil end
  return {low = tonumber(low), high = tonumber(high), since = tonumber(since), told = tonumber(told), at = tonumber(at)}
end

-- ramp:<bucket> holds "start_us counted_us calls rejected": from when a bucket with a ramp grows, and when its latest
-- call was counted; and of how many latest calls how many were rejected, in thousandths, older ones for less. ramp_read
-- returns nil if the text has another form.
local function ramp_write(r)
  return int(r.start) .. ' ' .. int(r.counted) .. ' ' .. int(r.calls) .. ' ' .. int(r.rejected)
end

local function ramp_read(text)
  local start, counted, calls, rejected = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+)$')
  if not start or #start > 16 or #counted > 16 or #calls > 6 or #rejected > 6 then return nil end
  return {start = tonumber(start), counted = tonumber(counted), calls = tonumber(calls), rejected = tonumber(rejected)}
end

-- pauses holds "until_us by reason" for each paused scope. pause_ends_at returns when a
-- pause or a hold ends, and 0 if the text has another form.
local function pause_write(ends, by, reason) return int(ends) .. ' ' .. by .. ' ' .. reason end

local function pause_ends_at(text) return tonumber(string.match(text or '', '^%d+') or 0) end

-- A hold is a pause after a failure of an account or a receiver. Its text is "until_us
-- tried length_us since_us probe reason". When it ends, one job goes, the probe, and the
-- end moves by the time that its call may take. hold_read returns nil if the text has
-- another form.
local function hold_write(hold)
  return table.concat({int(hold.ends), 'tried', int(hold.length), int(hold.since), hold.probe, hold.reason}, ' ')
end

local function hold_read(text)
  local ends, length, since, probe, reason = string.match(text, '^(%d+) tried (%d+) (%d+) (%S+) (.*)$')
  if not ends or #ends > 16 or #length > 16 or #since > 16 then return nil end
  return {ends = tonumber(ends), length = tonumber(length), since = tonumber(since), probe = probe, reason = reason}
end

-- The scope of a pause is '*' for the queue, TENANT, or "k:KIND". That of a hold is
-- "a:KIND" for the account of a kind, "a:KIND;TENANT" for a tenant's own account,
-- "e:TENANT;ENDPOINT" for one receiver of a tenant, and "h:ENDPOINT" for a receiver of
-- all tenants.
local function kind_scope(kind) return 'k:' .. kind end

local function account_scope(kind, tenant) return 'a:' .. kind .. (tenant and ';' .. tenant or '') end

local function endpoint_scope(tenant, endpoint) return 'e:' .. tenant .. ';' .. endpoint end

local function host_scope(endpoint) return 'h:' .. endpoint end

local function move_scope(tenant) return 'm:' .. tenant end

-- scope_kind returns the kind of a "k:KIND", scope_tenant the tenant whose own scope it is, and
-- scope_endpoint the receiver of a hold; nil for other scopes. scope_is_shared reports whether a hold concerns all tenants.
local function scope_kind(scope) return string.match(scope, '^k:(.*)$') end

local function scope_tenant(scope)
  if scope ~= '*' and not string.find(scope, ':', 1, true) then return scope end
  return string.match(scope, '^a:[^;]*;(.*)$') or string.match(scope, '^e:([^;]*);')
end

local function scope_endpoint(scope) return string.match(scope, '^e:[^;]*;(.*)$') or string.match(scope, '^h:(.*)$') end

local function scope_is_shared(scope) return string.find(scope, '^h:') ~= nil or string.find(scope, '^a:[^;]*$') ~= nil end

-- answers:<line> is "number ANSWERS": the answers to the latest call of a line, as JSON.
-- answers_read returns the answers to the call with this number, nil if there are none.
-- It raises for a higher number: the next call of a line is sent only after the answer to
-- this one.
local function answers_write(number, answers) return number .. ' ' .. answers end

local function answers_read(text, number)
  local known, answers = string.match(text or '', '^(%d+) (.*)$')
  if not known or tonumber(known) < tonumber(number) then return nil end
  if known ~= number then error('a later call was answered', 0) end
  return answers
end

-- tick:<entry> is "JOB FIRED SKIPPED LAST": the last job that the periodic entry enqueued in
-- this queue, '-' for none, the tick of that job, how many ticks were skipped, and the last of
-- them. record_read returns nil if the text has another form.
local function record_write(record)
  return format('%s %d %d %d', record.job == '' and '-' or record.job, record.fired, record.skipped, record.last_skipped)
end

local function record_read(text)
  local job, fired, skipped, last = string.match(text or '', '^(%S+) (%d+) (%d+) (%d+)$')
  if not job or math.max(#fired, #skipped, #last) > 15 then return nil end
  return {job = job == '-' and '' or job, fired = tonumber(fired), skipped = tonumber(skipped), last_skipped = tonumber(last)}
end

-- tenants holds "waiting done jobs units" for each tenant: jobs in its lanes, calls that succeeded,
-- jobs in all states, and the sum of their sizes. Under '*' are the sums, with a fifth number: how
-- many tenants have waiting jobs. tenant_read returns zeros for nil, and nil if the text has another
-- form. The size of a job is its bytes in units of 64, rounded up, and 8 units for what Redis keeps
-- beside them.
local SIZE_UNIT, SIZE_EACH = 64, 8
local function size_of(bytes) return math.ceil(bytes / SIZE_UNIT) + SIZE_EACH end

-- hg_body is "digest size". A field for each would cost 90 bytes more. body_read returns nil for what
-- it does not have.
local function body_write(digest, size) return digest .. ' ' .. int(size) end

local function body_read(text)
  local digest, size = string.match(text or '', '^(%S*) (%d+)$')
  return digest, size and #size <= 15 and tonumber(size) or nil
end

local function tenant_read(text)
  if not text then return 0, 0, 0, 0, 0 end
  local waiting, done, jobs, units, tenants = string.match(text, '^(%d+) (%d+) (%d+) (%d+) ?(%d*)$')
  if not waiting or math.max(#waiting, #done, #jobs, #units, #tenants) > 15 then return nil end
  return tonumber(waiting), tonumber(done), tonumber(jobs), tonumber(units), tonumber(tenants) or 0
end

local function tenant_write(waiting, done, jobs, units, tenants)
  return format(tenants and '%.0f %.0f %.0f %.0f %.0f' or '%.0f %.0f %.0f %.0f', waiting, done, jobs, units, tenants)
end

-- handed:<worker> is a JSON list of the number of the first run and the ids of the jobs.
-- handed_read returns the number and the list, and raises if the text has another form.
local function handed_write(run, jobs)
  local list = {run}
  for i, job in ipairs(jobs) do list[i + 1] = job[1] end
  return cjson.encode(list)
end

local function handed_read(text)
  local list = text and cjson.decode(text) or {}
  for i, word in ipairs(list) do
    if type(word) ~= (i == 1 and 'number' or 'string') then error('it is no list of a number and ids', 0) end
  end
  return table.remove(list, 1), list
end

-- leaving_write makes the text of a job in the hash leaving (move_out.lua). leaving_read raises if the text has
-- another form.
local function leaving_write(place, score, deadline)
  return place .. ' ' .. int(score) .. ' ' .. int(deadline)
end

local function leaving_read(text)
  local place, score, deadline = string.match(text, '^(%l+) (%d+) (%d+)$')
  if not place then error(string.format('%q', text) .. ' is no place of a job', 0) end
  return place, tonumber(score), tonumber(deadline)
end

-- A score, and a number in vtime, is written with all its digits. '*parts' of vtime is a
-- list of such numbers.
local function score_write(number) return format('%.17g', number) end

local function parts_write(parts)
  local words = {}
  for i, part in ipairs(parts) do words[i] = score_write(part) end
  return table.concat(words, ' ')
end

-- score_read returns 0 if the text is not a number in the range of ±2^63. Redis would
-- refuse such a score in the middle of the last step.
local function score_read(text)
  local n = tonumber(text or 0)
  return n and n > -2 ^ 63 and n < 2 ^ 63 and n or 0
end

local function parts_read(text)
  local parts = {}
  for part in string.gmatch(text or '', '%S+') do parts[#parts + 1] = score_read(part) end
  return parts
end
