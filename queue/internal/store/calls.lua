-- calls.lua: the calls that left since an entry of the events, of a queue that counts them.
--
-- KEYS[1]   headgate:{queue}:waiting
-- ARGV[1]   queue
-- ARGV[2]   id of the last entry that the caller knows; 0-0 for none
-- ARGV[3]   most: the maximum number of entries to look at
-- Returns   {id, missed, base_us, names, calls}
--   id      of the last entry that was looked at
--   missed  how many calls cannot be read, and one more if entries with calls were trimmed that the caller did not know
--   names   lines: a tenant and the attributes by which limits can differ, as in the name of a lane
--   calls   lines of "NAME SINCE TAKEN": the number of a name, from 1; how many µs the call left after the one before, the
--           first after base_us; and what it took, "COST;unit=n;…", without a COST of 1; behind that the ms that it
--           waited, "@MS", if it is the first call of a job. After "d" it is a call without a job, and after "d-" what
--           one did not take after all
-- Bound: `most` entries of eight calls each.
-- Full memory: it runs (allow-oom): it writes only faults.
local events, last = headgate .. 'events', ARGV[2]
local entries = read('XRANGE', events, last, '+', 'COUNT', tonumber(ARGV[3]) + 1)
local known = entries[1] and entries[1][1] == last
local gap, missed = not known and last ~= '0-0', 0
if not entries[1] then -- the events are lost, but those of a partition that has ended are counted
  local limits = read('HMGET', headgate .. 'limits', '*', 'epoch')
  last, missed = '0-0', gap and (limits[1] or not limits[2]) and 1 or 0
end
local names, numbers, calls, base, before = {}, {}, {}, nil, nil

local function add(text)
  local kind, tenant, run = string.match(text, '^[^\t]*\t([^\t]*)\t([^\t]*)\t(.*)$')
  local outcome, called, taken, attributes = string.match(run or '', '^(%l+) %l* %d+ (%d+) %d+ %d+ %d ([^ ]+) ([^ ]*) ')
  if not outcome or called == '0' then return end
  local name = tenant .. ';kind=' .. kind .. (attributes ~= '' and ';' .. attributes or '')
  if not string.find(taken, '^[%d%-;@][%l%d_;=@]*$') or string.find(name, '[%c%s]') then
    missed = missed + 1
    return
  end
  if not numbers[name] then
    names[#names + 1] = name
    numbers[name] = #names
  end
  called = tonumber(called)
  base, before = base or called, before or called
  local more = string.gsub(string.gsub(taken, '^1$', ''), '^1;', ';')
  calls[#calls + 1] = format('%d %d %s', numbers[name], called - before, (outcome == DIRECT and 'd' or '') .. more)
  before = called
end

for i = known and 2 or 1, #entries do
  last = entries[i][1]
  for k = 2, #entries[i][2], 2 do add(entries[i][2][k]) end
  if gap and i == 1 and calls[1] then missed = missed + 1 end -- else calls were not counted then
end
return {last, missed, int(base or 0), table.concat(names, '\n'), table.concat(calls, '\n')}
