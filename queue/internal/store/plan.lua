-- plan.lua: read, decide, write.
--
-- Redis keeps what a script wrote before it raised. So scripts do not write while they
-- decide: they plan their writes, which are made in one last step, when nothing can raise
-- any more.
--
--   read(command, key, ...)    runs a command that reads. It raises if the key holds
--                              another type, as every command of Redis does.
--   plan(command, key, ...)    adds a write to the last step. It raises if the key holds
--                              another type, so that the last step cannot.
--   undo(fn)                   sets what to do if the latest plan is dropped
--   count(key, field, n)       adds to a field of a hash in the last step
--   plans of {'record', key, field, n, ...}  add to the numbers of a record; see save_records
--   gather(command, key, id)   adds a word to a write: the words of one command and key are
--                              written together, after all other writes but push; XADD as
--                              with try
--   tally(key, n, ends)        adds to a counter that is a key of its own
--   try(command, key, ...)     a write that may fail: if Redis refuses it in the last step,
--                              that is reported under the key
--   push(key, id)              adds to the left of a list in the last step, after all else
--   attempt(what, decide)      decides about one thing. If decide raises, its plans are
--                              dropped, the fault is reported under the name `what`,
--                              attempt returns false, and the script continues.
--   attempt_job(id, decide, ...)  the same for a job; it also returns what decide returns
--   report(what, fault)        reports a fault
--   finish(main)               runs a script: main decides, then the plans are performed
--
-- Faults are in the hash headgate:{queue}:faults, `what` -> "at_us text", until an hour
-- after the latest one was seen.

-- type_of returns the type of the keys of a command, by its name; nil if it takes any
-- type. It is not a table, because Redis would create that at every call of a script.
local function type_of(command)
  local first, H, Z, L, R, S, G, X = string.byte(command), 72, 90, 76, 82, 83, 71, 88
  if first == H then return 'hash' end
  if first == Z then return 'zset' end
  if first == L or first == R then return 'list' end
  if first == S then return command ~= 'SET' and 'set' or nil end
  if first == G then return 'string' end
  if first == X then return 'stream' end
end

-- types holds the type of each key that was read or will be written.
local types = {}

local function read(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  -- Redis does not say which key it was.
  if type(reply) == 'table' and reply.err then error(reply.err .. ': ' .. key, 0) end
  types[key] = type_of(command) or types[key]
  return reply
end

local plans = {}

-- plan_words is plan for a command that is already a table.
local function plan_words(write)
  local command, key = write[1], write[2]
  local is = type_of(command)
  if is and types[key] ~= is then
    local found = redis.call('TYPE', key)
    found = found.ok or found
    if found ~= 'none' and found ~= is then error('WRONGTYPE ' .. key .. ' is a ' .. found .. ', not a ' .. is, 0) end
    types[key] = is
  end
  for i = 3, #write do
    local word = write[i]
    if type(word) ~= 'string' and type(word) ~= 'number' then error('cannot write ' .. type(word) .. ' to ' .. key, 0) end
  end
  plans[#plans + 1] = write
end

local function plan(command, key, ...)
  local n, write = select('#', ...), {command, key, ...}
  if n > 0 and #write ~= n + 2 then error('cannot write nil to ' .. key, 0) end
  return plan_words(write)
end

-- If a plan is dropped, what the script remembers of it has to be undone.
local function undo(fn) plans[#plans].undo = fn end

-- A counter must not fail a script: if the field is not a number, or the key not a hash,
-- that is reported.
local function count(key, field, n) plans[#plans + 1] = {'count', key, field, n} end

-- tally adds to a counter that is a key of its own, in the last step. ends is when the
-- counter expires, in Unix seconds; nil for never.
local function tally(key, n, ends) plans[#plans + 1] = {'tally', key, n, ends} end

local function try(...) plans[#plans + 1] = {'try', ...} end

-- The words after id are for on_drop: they describe what the script remembers of the
-- plan.
local function gather(command, key, id, ...)
  if command ~= 'XADD' and types[key] ~= type_of(command) then
    plan(command, key, id) -- checks the key's type
    plans[#plans] = nil
  end
  plans[#plans + 1] = {'gather', command, key, id, ...}
end

-- Ids are added to a list last, when everything about their jobs is written.
local function push(key, id) gather('LPUSH', key, id) end

-- on_drop is called for each plan that is dropped; nil for nothing.
local on_drop

local faults
local function report(what, fault)
  faults = faults or {}
  faults[what] = fault
end

-- fault_text returns the text of what pcall caught. Redis's own errors are tables.
local function fault_text(err)
  return type(err) == 'table' and (err.err or err[1]) or tostring(err)
end

-- stale reports whether the caller has to read the limits again and repeat the call;
-- nothing is damaged.
local function stale(text) return string.sub(text, 1, 6) == 'STALE ' end

-- give_up drops the plans since `known` about something damaged, and reports it.
local function give_up(what, err, known)
  for i = #plans, known + 1, -1 do
    if plans[i].undo then plans[i].undo() end
    if on_drop then on_drop(plans[i]) end
    plans[i] = nil
  end
  local text = fault_text(err)
  if stale(text) then error(text, 0) end
  report(what, text)
end

local function attempt(what, decide)
  local known = #plans
  local ok, err = pcall(decide)
  if not ok then give_up(what, err, known) end
  return ok
end

-- attempt_job is attempt for one of many jobs. It also returns what decide(id, ...)
-- returns.
local function attempt_job(id, decide, ...)
  local known = #plans
  local ok, answer = pcall(decide, id, ...)
  if ok then return true, answer end
  give_up('job ' .. id, answer, known)
  return false
end

local function save_faults()
  local MAX_FAULTS, MAX_FAULT, FAULTS_MS = 100, 300, 3600000 -- how many, how long each, and how long they are kept
  local key = 'headgate:{' .. ARGV[1] .. '}:faults'
  local time = redis.call('TIME')
  for what, fault in pairs(faults) do
    local n = redis.pcall('HLEN', key)
    if type(n) == 'table' then
      redis.call('DEL', key)
      n = 0
    end
    if n < MAX_FAULTS then
      redis.pcall('HSETNX', key, what, string.format('%.0f ', time[1] * 1000000 + time[2]) .. string.sub(fault, 1, MAX_FAULT))
    end
  end
  redis.pcall('PEXPIRE', key, FAULTS_MS)
end

-- before_writes is what the last step does first; nil for nothing.
local before_writes

-- record_text(field, text, sum, all) returns the new text of a record, to whose numbers sum is added,
-- or nil to delete it. It adds to `all` what changed, and all is the sum for the record '*'.
local record_text

-- save_records writes records, the fields of a hash, with one read and one write. The record '*' has
-- the sums of all others.
local function save_records(changes)
  local key, fields, sums = changes[1][2], {'*'}, {}
  for _, change in ipairs(changes) do
    local sum = sums[change[3]]
    if not sum then
      sum = {}
      sums[change[3]], fields[#fields + 1] = sum, change[3]
    end
    for i = 4, #change do sum[i - 3] = (sum[i - 3] or 0) + change[i] end
  end
  local all, gone = {}, {}
  for last = #fields, 1, -1000 do -- backwards, so that '*' is last
    local first, words = math.max(last - 999, 1), {}
    local texts = redis.pcall('HMGET', key, unpack(fields, first, last))
    if texts.err then return report(key, texts.err) end
    for i = last, first, -1 do
      local text = record_text(fields[i], texts[i - first + 1], sums[fields[i]] or all, all)
      if text then words[#words + 1], words[#words + 2] = fields[i], text else gone[#gone + 1] = fields[i] end
    end
    if words[1] then redis.call('HSET', key, unpack(words)) end
  end
  for i = 1, #gone, 1000 do redis.call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone))) end
end

local function perform_try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then report(select(2, ...), fault_text(reply)) end
end

-- append_entries adds texts to a stream, several to an entry, as fields 1, 2, ...
local MAX_ENTRIES, ENTRY = 5000, 8
local function append_entries(words)
  for i = 3, #words, ENTRY do
    local entry = {}
    for k = i, math.min(i + ENTRY - 1, #words) do entry[#entry + 1], entry[#entry + 2] = #entry / 2 + 1, words[k] end
    perform_try('XADD', words[2], 'MAXLEN', '~', MAX_ENTRIES, '*', unpack(entry))
  end
end

-- announcement is the message with which the script's work is announced, nil for none; see announce.go. If publishing is
-- not allowed, workers find the work by themselves.
local announcement

local function perform()
  if before_writes then before_writes() end
  local sums, gathered, tallies, rest, order = nil, nil, nil, nil, {}
  for i = 1, #plans do
    local write = plans[i]
    if write[1] == 'gather' then
      gathered = gathered or {}
      local by_key = gathered[write[2]] or {}
      gathered[write[2]] = by_key
      local words = by_key[write[3]]
      if not words then
        words = {write[2], write[3]}
        by_key[write[3]] = words
        order[#order + 1] = words
      end
      words[#words + 1] = write[4]
    elseif write[1] == 'count' then
      sums = sums or {}
      local fields = sums[write[2]] or {}
      sums[write[2]] = fields
      fields[write[3]] = (fields[write[3]] or 0) + write[4]
    elseif write[1] == 'tally' then
      tallies = tallies or {}
      local known = tallies[write[2]] or {n = 0, ends = write[4]}
      tallies[write[2]] = known
      known.n = known.n + write[3]
    elseif write[1] == 'record' then
      rest = rest or {}
      rest[#rest + 1] = write
    elseif write[1] == 'try' then
      perform_try(unpack(write, 2))
    else
      redis.call(unpack(write))
    end
  end
  -- Lists come last, when everything else about their jobs is written.
  for pass = 1, 2 do
    for _, words in ipairs(order) do
      if (words[1] == 'LPUSH') == (pass == 2) then
        if words[1] == 'XADD' then
          append_entries(words)
        else
          for i = 3, #words, 1000 do redis.call(words[1], words[2], unpack(words, i, math.min(i + 999, #words))) end
        end
      end
    end
  end
  for key, sum in pairs(tallies or {}) do
    local reply = redis.pcall('INCRBY', key, string.format('%.0f', sum.n))
    if type(reply) == 'table' then
      report(key, fault_text(reply))
    elseif sum.ends and reply == sum.n then
      redis.call('EXPIREAT', key, sum.ends)
    end
  end
  for key, fields in pairs(sums or {}) do
    for field, n in pairs(fields) do
      local reply = redis.pcall('HINCRBY', key, field, string.format('%.0f', n))
      if type(reply) == 'table' then report(key, fault_text(reply)) end
    end
  end
  if rest then save_records(rest) end
  if announcement then redis.pcall('PUBLISH', 'headgate:{' .. ARGV[1] .. '}:wake', announcement) end
end

-- without_queue is what a script that runs again and again returns if a key of the whole
-- queue is damaged. It has decided nothing then, and the damage is among the faults.
-- Raising would make an error of every run.
local without_queue

local function finish(main)
  local ok, result = pcall(main)
  if ok then
    perform()
  else
    local text = fault_text(result)
    if without_queue and not stale(text) then
      report('queue', text)
      result = without_queue
    else
      if not stale(text) then report('script', text) end
      result = redis.error_reply(text)
    end
  end
  if faults then save_faults() end
  return result
end
