-- Rebuilds a ledger from what was written down of it.
--
-- KEYS  as of layout.lua, and instead of the slot the mark that was set before the following was read. If the queue
--       has sessions, waiting messages become returned ranges: the next client that reads them places them
-- ARGV  1 JSON: {"cursor", "version", "has_message_ttl", "epoch", "waiting", "deferred", "moving", "skipped"} as
--         operations.take_snapshot of checkpoint.lua replies them, numbers as decimal strings; and "states", if the queue
--         has sessions: [[session, version, when it was set, value], …], whose records are stored; "schedules" and
--         "scheduled": [[offset, when], …]; "postponed": [[offset, delivery count, until], …], which are waiting, too, if
--         messages have sessions; "changes": [[offset, {"<name>": "<JSON text>"}, true if prepared], …]; of
--         a subscription "rules", the version of its rules; if it detects duplicates "duplicates":
--         [[first, last], …], "dedup_checkpoint": up to where these are known, "dedup_epoch", and "dedup_upto": from
--         where the log is read once more, because its records from there on are in the window
--       2 the value of the mark
-- Reply 1 if it was rebuilt, 0 if there is a ledger, 2 if the mark is another, or gone: Redis was emptied since it was
--       set, and there may have been a ledger since then that had more written down of it
-- Effect: meta comes last, so there is no half-made ledger; the other keys, as a script that died left them, go first.

if ledger.cursor then
  return 0
end
if redis.call('GET', SLOT) ~= ARGV[2] then
  return 2
end
redis.call('DEL', unpack(KEYS))

local time = redis.call('TIME')
local now = time[1] .. string.format('%03d', math.floor(tonumber(time[2]) / 1000))
local state = cjson.decode(ARGV[1])
local held = 0
local scheduled = 0

for _, range in ipairs(state.waiting) do
  redis.call('ZADD', REDELIVERABLE, range[1], join_returned(unpack(range)))
  held = held + tonumber(range[2]) - tonumber(range[1]) + 1
end
for _, range in ipairs(state.deferred) do
  for offset = tonumber(range[1]), tonumber(range[2]) do
    redis.call('ZADD', DEFERRED, num(offset), join_deferred(offset, range[3]))
    held = held + 1
  end
end
for _, one in ipairs(state.scheduled) do
  redis.call('ZADD', SCHEDULED, one[1], join_scheduled(one[1], one[2]))
  redis.call('ZADD', DUE, one[2], padded(one[1]))
  if tonumber(one[1]) >= tonumber(state.cursor) then
    redis.call('ZADD', SKIPPED, one[1], one[1])
    state.skipped[#state.skipped + 1] = one[1]
  end
  held, scheduled = held + 1, scheduled + 1
end
for _, message in ipairs(state.postponed or {}) do
  redis.call('ZADD', WAKES, message[3], padded(message[1]))
  redis.call('ZADD', POSTPONED, message[1], join_postponed(message[1], message[2], ''))
  if tonumber(message[1]) >= tonumber(state.cursor) then
    state.skipped[#state.skipped + 1] = message[1]
  end
  held = held + (SESSIONS and 0 or 1)
end
-- The owners of these transfers are gone with what they knew: the next client that adopts transfers finishes them.
for _, move in ipairs(state.moving) do
  redis.call('HSET', MOVING, move[1], join_move(move[2], move[3]))
  redis.call('ZADD', MOVES, now, padded(move[1]))
  held = held + 1
end
for _, offset in ipairs(state.skipped) do
  redis.call('ZADD', SKIPPED, offset, offset)
end
local changed = 0
for _, one in ipairs(state.changes or {}) do
  local text = cjson.encode(one[2])
  redis.call('HSET', PROPERTIES, (one[3] and '?' or '') .. one[1], text)
  changed = changed + #text
end
for _, one in ipairs(state.states) do
  redis.call('HSET', STATES, one[1], join_state(one[2], one[3], '1', one[4]))
end
local fields = {
  'cursor', state.cursor, 'version', state.version, 'in_flight', num(held),
  'skipped', #state.skipped > 0 and '1' or '0', 'moving', tostring(#state.moving), 'transacts', '1',
}
if state.epoch then
  fields[#fields + 1], fields[#fields + 2] = 'epoch', state.epoch
end
if state.dedup_upto then
  for _, range in ipairs(state.duplicates) do
    for offset = tonumber(range[1]), tonumber(range[2]) do
      redis.call('ZADD', DUPLICATES, num(offset), num(offset))
      if offset >= tonumber(state.cursor) then
        redis.call('ZADD', SKIPPED, num(offset), num(offset))
        fields[8] = '1'
      end
    end
  end
  for _, name in ipairs({ 'dedup_upto', 'dedup_checkpoint', 'dedup_epoch' }) do
    if state[name] then
      fields[#fields + 1], fields[#fields + 2] = name, state[name]
    end
  end
end
if SESSIONS and #state.waiting > 0 then
  fields[#fields + 1], fields[#fields + 2] = 'sessions_unfiled', '1'
end
if changed > 0 then
  fields[#fields + 1], fields[#fields + 2] = 'properties', num(changed)
end
if state.rules then
  fields[#fields + 1], fields[#fields + 2] = 'rules', state.rules
end
if state.schedules then
  fields[#fields + 1], fields[#fields + 2] = 'schedules', '1'
  fields[#fields + 1], fields[#fields + 2] = 'scheduled', num(scheduled)
end
if #(state.postponed or {}) > 0 then
  fields[#fields + 1], fields[#fields + 2] = 'postponed', tostring(#state.postponed)
end
if state.has_message_ttl then
  fields[#fields + 1], fields[#fields + 2] = 'has_message_ttl', '1'
end
redis.call('HSET', META, unpack(fields))
return 1
