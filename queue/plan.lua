-- plan.lua: read, decide, write.
--
-- Redis keeps what a script wrote before it raised. So no script of ours writes
-- while it decides: it plans its writes, and they are made in one last step, when
-- nothing can raise any more.
--
--   read(command, key, ...)    a command that reads. It raises where the key holds
--                              another type, as every command of Redis does.
--   plan(command, key, ...)    a write for the last step. It raises where the key
--                              holds another type, so that the last step cannot.
--   undo(fn)                   what to do should the latest plan be dropped
--   count(key, field, n, drop) adds to a field of a hash in the last step
--   push(key, id)              adds to the left of a list in the last step, behind all else
--   attempt(what, decide)      decides about one thing. Where that raises, its plans
--                              are dropped, the fault is reported under the name
--                              `what`, the answer is false, and the script goes on.
--   report(what, fault)        reports something that cannot be understood, once
--   finish(main)               runs a script: main decides, then the plans are made
--
-- Faults stand in the hash headgate:{queue}:faults, `what` -> "at_us text", for an
-- hour after the latest was seen.
local MAX_FAULTS, MAX_FAULT, FAULTS_MS = 100, 300, 3600000

-- type_of is the type of the keys of a command, by its name; nil where it takes any.
-- It is no table, which Redis would make anew at every call of a script.
local H, Z, L, R, S, G, X = 72, 90, 76, 82, 83, 71, 88
local function type_of(command)
  local first = string.byte(command)
  if first == H then return 'hash' end
  if first == Z then return 'zset' end
  if first == L or first == R then return 'list' end
  if first == S then return command ~= 'SET' and 'set' or nil end
  if first == G then return 'string' end
  if first == X then return 'stream' end
end

-- types holds the type of each key that was read or is planned to be written.
local types = {}

local function read(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  -- Redis does not say which key it was.
  if type(reply) == 'table' and reply.err then error(reply.err .. ': ' .. key, 0) end
  types[key] = type_of(command) or types[key]
  return reply
end

local plans = {}

local function plan(command, key, ...)
  local is = type_of(command)
  if is and types[key] ~= is then
    local found = redis.call('TYPE', key)
    found = found.ok or found
    if found ~= 'none' and found ~= is then error('WRONGTYPE ' .. key .. ' is a ' .. found .. ', not a ' .. is, 0) end
    types[key] = is
  end
  local write = {command, key, ...}
  for i = 3, select('#', ...) + 2 do
    local word = type(write[i])
    if word ~= 'string' and word ~= 'number' then error('cannot write ' .. word .. ' to ' .. key, 0) end
  end
  plans[#plans + 1] = write
end

-- What a script remembers of its plans has to go with them.
local function undo(fn) plans[#plans].undo = fn end

-- A counter is not worth a failure: what is no number, or in no hash, is reported.
-- With drop a field that is not above 0 any more is deleted.
local function count(key, field, n, drop)
  plans[#plans + 1] = {'count', key, field, n, drop}
end

-- A queue of jobs is added to once, when all that they are is written.
local function push(key, id)
  plan('LPUSH', key, id)
  plans[#plans][1] = 'push'
end

local faults
local function report(what, fault)
  faults = faults or {}
  faults[what] = fault
end

-- fault_text is what pcall caught. Redis's own errors are tables.
local function fault_text(err)
  return type(err) == 'table' and (err.err or err[1]) or tostring(err)
end

-- The caller reads the limits again and comes back: nothing is damaged.
local function stale(text) return string.sub(text, 1, 6) == 'STALE ' end

local function attempt(what, decide)
  local known = #plans
  local ok, err = pcall(decide)
  if ok then return true end
  for i = #plans, known + 1, -1 do
    if plans[i].undo then plans[i].undo() end
    plans[i] = nil
  end
  local text = fault_text(err)
  if stale(text) then error(text, 0) end
  report(what, text)
  return false
end

local function save_faults()
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

-- before_writes is what else the last step does, first: lanes.lua saves its buckets.
local before_writes

local function perform()
  if before_writes then before_writes() end
  local sums, pushed
  for _, write in ipairs(plans) do
    if write[1] == 'push' then
      pushed = pushed or {}
      pushed[write[2]] = pushed[write[2]] or {}
      table.insert(pushed[write[2]], write[3])
    elseif write[1] == 'count' then
      sums = sums or {}
      local fields = sums[write[2]] or {}
      sums[write[2]] = fields
      local sum = fields[write[3]] or {n = 0}
      fields[write[3]] = sum
      sum.n, sum.drop = sum.n + write[4], write[5]
    else
      redis.call(unpack(write))
    end
  end
  for key, ids in pairs(pushed or {}) do
    for i = 1, #ids, 1000 do redis.call('LPUSH', key, unpack(ids, i, math.min(i + 999, #ids))) end
  end
  for key, fields in pairs(sums or {}) do
    for field, sum in pairs(fields) do
      if sum.n ~= 0 then
        local reply = redis.pcall('HINCRBY', key, field, string.format('%.0f', sum.n))
        if type(reply) == 'table' then
          report(key, fault_text(reply))
        elseif sum.drop and reply <= 0 then
          redis.call('HDEL', key, field)
        end
      end
    end
  end
end

-- without_queue is what a script that runs by itself, again and again, answers where a
-- key of the whole queue cannot be understood. It has decided nothing then, and that is
-- among the faults: an error would be one at every run.
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
