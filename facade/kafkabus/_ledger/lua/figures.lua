-- Figures of a ledger for metrics.
--
-- KEYS  see layout.lua; the slot is not used
-- ARGV  1 how many ranges are counted at the most of those that wait to be granted again
-- Reply nothing if there is no ledger, else {the text "changed", cursor, in flight, scheduled, moving, records beyond
--       the cursor that no claim may grant, deferred, waiting to be granted again, postponed, sessions that clients
--       hold, sessions that are available, deliveries after which messages waited again, the copies that their
--       destinations refuse, each as "<offset>:<bytes>"}
-- Effect: none.

if not ledger.cursor then
  return false
end
local waiting = 0
for _, member in ipairs(redis.call('ZRANGE', REDELIVERABLE, 0, tonumber(ARGV[1]) - 1)) do
  local first, last = string.match(member, '^' .. RETURNED_FORM .. '$')
  waiting = waiting + tonumber(last) - tonumber(first) + 1
end
local skipped = 0
if ledger.skipped > 0 then
  skipped = #redis.call('ZRANGEBYSCORE', SKIPPED, num(ledger.cursor), '+inf')
end
local refused = refused_copies()
for index, copy in ipairs(refused) do
  refused[index] = copy[1] .. ':' .. copy[2]
end
return {
  ledger.changed, num(ledger.cursor), num(ledger.in_flight), num(redis.call('ZCARD', SCHEDULED)),
  num(math.max(0, ledger.moving)), num(skipped), num(redis.call('ZCARD', DEFERRED)), num(waiting),
  num(redis.call('ZCARD', POSTPONED)),
  num(SESSIONS and redis.call('HLEN', HOLDERS) or 0),
  num(SESSIONS and redis.call('ZCARD', FREE) or 0), redis.call('HGET', META, 'returned') or '0', refused
}
