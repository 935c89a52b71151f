-- record.lua: the record of how jobs ended: counts, the last events of a queue, and a log
-- for each job that is not deleted.
--
-- A library behind lanes.lua. Keys, under headgate:{queue}:
--
--   totals      hash: 'answer:'<class> -> calls with this answer; 'outcome:'<outcome> ->
--               runs that ended so, except done, which is answer:ok
--   events      stream of the last runs that made a call or ended their job. An entry has
--               up to 8 of them, each in a field: "ID KIND TENANT RUN" with tabs between;
--               kind and tenant are escaped, RUN: see settle.lua, record
--
-- On a task: hg_released "at_us limit", when it was last released and which limit held it
-- until then; hg_log lines of at_us, what, attempt, limit, until_us, answer, detail,
-- separated by tabs, without empty ones at the end.
local MAX_LOG, LOG_HEAD, MAX_DETAIL = 2048, 512, 200

-- first_run returns the hg_first of a run, which began when its job was released.
local function first_run(released, now, owner)
  local at = released_read(released)
  return first_write(at or now, owner)
end

-- event adds a run to the events, and counts its answer and outcome.
local function event(id, tenant, kind, outcome, answer, run)
  gather('XADD', headgate .. 'events', id .. '\t' .. kind .. '\t' .. tenant .. '\t' .. run)
  if answer ~= '' then count(headgate .. 'totals', 'answer:' .. answer, 1) end
  if outcome ~= 'done' then count(headgate .. 'totals', 'outcome:' .. outcome, 1) end
end

-- event_of_slot adds a call to the events that is counted at its slot, if the queue counts calls. Limits that are
-- damaged must not keep a job with a worker that is gone.
local function event_of_slot(id, lane, outcome, slot, taken)
  local understood, limits = pcall(config)
  if not understood or not limits.conformance then return end
  local attributes = string.gsub(string.match(lane, ';(.*)$') or '', '^kind=[^;]*;?', '')
  gather('XADD', headgate .. 'events', id .. '\t' .. (kind_of(lane) or '') .. '\t' .. tenant_of(lane) .. '\t'
    .. run_write({outcome = outcome, called = slot, taken = taken, attributes = attributes}))
end

-- clip cuts a text to `most` bytes, between two characters.
local function clip(text, most)
  if #text <= most then return text end
  local last = most
  while last > 0 and string.byte(text, last + 1) >= 128 and string.byte(text, last + 1) < 192 do last = last - 1 end
  return string.sub(text, 1, last)
end

local function log_line(at, what, attempt, limit, till, answer, detail)
  local line = table.concat({int(at), what, attempt or '', limit or '', till or '', answer or '', clip(detail or '', MAX_DETAIL)}, '\t')
  return (string.gsub(line, '\t+$', '')) .. '\n'
end

-- log_add returns a log with more lines. A log that grows too long keeps its beginning
-- and its end; one line stands for those removed between them.
local DROPPED = '\tdropped\n'
local function log_add(known, lines)
  known = known or ''
  if string.sub(known, -1) ~= '\n' then known = '' end -- it is not a log
  local text = known .. lines
  if #text <= MAX_LOG then return text end
  local mark = string.find(text, DROPPED, 1, true)
  local head = #(string.match(string.sub(text, 1, mark or LOG_HEAD), '^.*\n') or '')
  local rest = mark and mark + #DROPPED - 1 or head
  while #text - rest > MAX_LOG - head - 32 do
    local line = string.find(text, '\n', rest + 1, true)
    if not line or line == #text then break end
    rest = line
  end
  local kept = string.sub(text, rest + 1)
  return string.sub(text, 1, head) .. (string.match(kept, '^%d+') or '0') .. DROPPED .. kept
end

-- log_begin returns the lines that come before a run's own: that the job came into its
-- lane, if the log is new, and that it was released.
local function log_begin(known, released, position)
  local lines = ''
  if (known or '') == '' and position then lines = log_line(position % BAND, 'enqueued') end
  local at, limit = released_read(released)
  if at then lines = lines .. log_line(at, 'released', '', limit) end
  return lines
end
