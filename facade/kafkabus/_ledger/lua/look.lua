-- Upkeep's look at a ledger: its state, and when something of it is due.
--
-- KEYS  see layout.lua; the slot is not used
-- ARGV  1 the text "changed" of the ledger when upkeep last wrote it down; "-" if it did not
--       2 within how many ms upkeep looks again if the ledger was changed since
--       3… fields of meta
-- Reply nothing if there is no ledger, else {the text "changed", ms until a lock, a transfer, a scheduled or a
--       postponed message is due (negative: it was; empty: none is), values of these fields …}
-- Effect: look_at says when upkeep looks again, so that only requests that need it earlier notify it.

if not ledger.cursor then
  return false
end
local due = math.huge
for _, key in ipairs({ EXPIRIES, MOVES, DUE, WAKES }) do
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  due = math.min(due, tonumber(first[2] or math.huge))
end
local look_at = due
if ledger.changed ~= ARGV[1] then
  look_at = math.min(due, now + tonumber(ARGV[2]))
end
if look_at == math.huge then
  redis.call('HDEL', META, 'look_at')
elseif look_at ~= ledger.look_at then
  redis.call('HSET', META, 'look_at', num(look_at))
end
return {
  ledger.changed, due < math.huge and string.format('%.0f', due - now) or '',
  unpack(redis.call('HMGET', META, unpack(ARGV, 3)))
}
