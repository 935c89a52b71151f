-- ledger.lua: agree to a term in which a ledger of shared limits is replaced, or store it, in one of its seats.
--
-- KEYS[1]   headgate:{queue}:ledger, headgate:{*budget}:ledger: or headgate:{*budget}:ledger:<tenant>, or
--           the same with another hash tag: see package seats
-- ARGV[1]   what is in its hash tag
-- ARGV[2]   term of the caller
-- ARGV[3]   id of the caller
-- ARGV[4]   "NUMBER JSON", the ledger to be stored in the term; '' to begin it
-- ARGV[5]   for how many ms it is kept, at least; '' for ever
-- Returns   {1 if it agrees, else 0; the latest term to which it agreed; the term in which its ledger was
--           stored; the ledger if the caller begins a term: "NUMBER JSON", '' for none, '?' if it is damaged}
-- Value     the latest term, its caller, the term in which the ledger was stored, and the ledger
-- Full memory: it runs (allow-oom), so that jobs go: it replaces one small key.
local function number_of(text) return tonumber(string.match(text, '^%d+') or 0) end
local latest, caller, of, ledger
local whole = attempt(KEYS[1], function()
  latest, caller, of, ledger = string.match(read('GET', KEYS[1]) or '0 ? 0 ', '^(%d+) (%S+) (%d+) (.*)$')
  local number = ledger and (ledger == '' and 0 or tonumber(string.match(ledger, '^(%d+) ')))
  if not number or math.max(tonumber(latest), tonumber(of), number) >= 2 ^ 53 then error('it is no ledger', 0) end
end)
if not whole then return {0, 0, 0, '?'} end
local begins, term, known = ARGV[4] == '', tonumber(ARGV[2]), tonumber(latest)
local agrees = term > known or (not begins and term == known and caller == ARGV[3])
-- One that comes late, after a newer one, is not stored.
local late = agrees and not begins and tonumber(of) == term and number_of(ARGV[4]) <= number_of(ledger)
if agrees and not late then
  latest, caller = ARGV[2], ARGV[3]
  if not begins then of, ledger = latest, ARGV[4] end
  local value = table.concat({latest, caller, of, ledger}, ' ')
  if ARGV[5] == '' then plan('SET', KEYS[1], value) else plan('SET', KEYS[1], value, 'PX', int(math.max(tonumber(ARGV[5]), read('PTTL', KEYS[1])))) end
end
return {agrees and 1 or 0, tonumber(latest), tonumber(of), begins and ledger or ''}
