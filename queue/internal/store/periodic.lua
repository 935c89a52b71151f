-- periodic.lua: which ticks of each entry were fired, for the scripts of periodic jobs.
--
-- KEYS[1]   headgate:periodic:fired, a hash: id -> "F" or "F T queue job": F was the last tick
--           that was fired, and T goes to the queue as such a job; '' -> the second until which everything
--           was fired
-- A value of another type is replaced. No tick goes twice because of that: each queue
-- knows which ticks were fired into it.
local function field(id)
  local text = redis.pcall('HGET', KEYS[1], id)
  if type(text) == 'table' then
    redis.call('DEL', KEYS[1])
    return ''
  end
  return text or ''
end

local function fired(id)
  local last, chosen, where = string.match(field(id), '^(%d+) ?(%d*) ?(.*)$')
  return tonumber(last) or 0, tonumber(chosen) or 0, where
end

local function fired_write(last, chosen, where)
  if chosen <= last then return string.format('%d', last) end
  return string.format('%d %d %s', last, chosen, where)
end
