-- Tail of every request: a number seen before gets its reply again, a lower one is refused, else the operations run.
--
-- KEYS, ARGV, Reply, Effect: see layout.lua and prelude.lua.

if not ledger.cursor then
  return cjson.encode({ status = 'missing' })
end

-- Upkeep writes down what changed within so many ms.
local WRITTEN_WITHIN = 5000

-- Notifies upkeep to look at this ledger at a time, unless it will look by then. It need not be notified each time:
-- whenever it looks, it says when it looks again (look.lua). A lost notification is made up for by its sweeps.
local function tell_upkeep(at)
  if at < ledger.look_at then
    local namespace, entity = string.match(ARGV[2], '^([^/]*)/(.*)$')
    write('HSET', META, 'look_at', num(at))
    redis.call('PUBLISH', namespace .. '/$upkeep', num(math.max(0, at - now)) .. ' ' .. ARGV[3] .. ' ' .. entity)
  end
end

local number = tonumber(ARGV[1])
local slot = redis.call('GET', SLOT)
if slot then
  local last, reply = string.match(slot, '^(%d+) (.*)$')
  if tonumber(last) == number then
    return reply
  end
  if tonumber(last) > number then
    return cjson.encode({ status = 'stale' })
  end
end

local replies = {}
for index, op in ipairs(cjson.decode(ARGV[4])) do
  replies[index] = operations[op.op](op)
end

local changed = ledger.wrote
for field, value in pairs(at_start) do
  changed = changed or (ledger[field] or false) ~= value
end
if changed then
  -- The time makes it another text than that of a request that Redis lost in a failover.
  ledger.changed = num(ledger.version + 1) .. ':' .. num(now)
end
local reply = cjson.encode({
  status = 'ok', now = num(now), replies = replies, skew = skew ~= 0 and num(skew) or nil,
  changes = ledger.properties > 0 or nil,
})
write(
  'HSET', META, 'cursor', num(ledger.cursor), 'version', num(ledger.version + 1), 'in_flight', num(ledger.in_flight),
  'skipped', num(ledger.skipped), 'epoch', ledger.epoch_at == ledger.cursor and ledger.epoch or '',
  'leader', ledger.leader, 'changed', ledger.changed, 'clock', num(ledger.clock), 'slip', num(ledger.slip)
)
if ledger.moving ~= at_start.moving then
  write('HSET', META, 'moving', num(math.max(0, ledger.moving)))
end
if ledger.late ~= late_at_start then
  write('HSET', META, 'late', ledger.late)
end
if ledger.returned > 0 then
  local before = tonumber(redis.call('HGET', META, 'returned') or '0')
  write('HSET', META, 'returned', num(before + ledger.returned))
end
if ledger.schedules then
  write('HSET', META, 'schedules', '1', 'scheduled', num(redis.call('ZCARD', SCHEDULED)))
end
if any_postponed then
  write('HSET', META, 'postponed', num(redis.call('ZCARD', POSTPONED)))
end
if DUPLICATES then
  write('HSET', META, 'dedup_upto', num(ledger.dedup_upto))
end
if changed then
  tell_upkeep(math.min(ledger.due, now + WRITTEN_WITHIN))
end
-- A client that was silent for so long has lost its leases anyway; its next request is accepted, whatever its number.
write('SET', SLOT, ARGV[1] .. ' ' .. reply, 'PX', 600000)
if ledger.notify then
  redis.call('PUBLISH', ARGV[2], ARGV[3])
end
return reply
