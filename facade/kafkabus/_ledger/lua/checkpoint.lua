-- The snapshot of a ledger that is written down outside of Redis, so that the ledger can be rebuilt.
--
-- Defines
--   take_snapshot {close}  with close (true), no transaction prepares anything here any more.
--                Reply: {"cursor": offset, "version": number, "has_message_ttl": true, "epoch": number if known,
--                        "waiting": [[first, last, count], …]  granted and not settled: once Redis is lost, no client
--                                                              holds them; a delivery under way is counted
--                        "deferred": [[first, last, count], …], "moving": [[offset, count, intent], …],
--                        "schedules": true if any were, "scheduled": [[offset, when], …],
--                        "postponed": [[offset, until], …]       which are waiting, too
--                        "skipped": [offset, …]}                 all unordered; skipped includes seized messages
--                        "changed": ["<offset>", "?<offset>", …]  fields of the key properties, if it has any
--                  and, if duplicates are detected, "dedup_upto": offset, "duplicates": [offset, …],
--                  "dedup_epoch": number if it is known

-- The fields of changed properties of messages that are not settled, by their ranges and by what is moving; others are
-- forgotten.
local function fields_of_changed(held, moving)
  local fields, is_moving, ranges = {}, {}, {}
  for _, move in ipairs(moving) do
    is_moving[move[1]] = is_prepared(move[3]) and 'prepared' or 'moving'
  end
  for _, several in ipairs(held) do
    for _, range in ipairs(several) do
      ranges[#ranges + 1] = { tonumber(range[1]), tonumber(range[2]) }
    end
  end
  table.sort(ranges, function(a, b) return a[1] < b[1] end)
  local function is_held(offset)
    if offset >= ledger.cursor then
      return true
    end
    local low, high = 1, #ranges
    while low <= high do
      local middle = math.floor((low + high) / 2)
      if ranges[middle][2] < offset then
        low = middle + 1
      elseif ranges[middle][1] > offset then
        high = middle - 1
      else
        return true
      end
    end
    return false
  end
  local bytes, all = 0, redis.call('HGETALL', PROPERTIES)
  for index = 1, #all, 2 do
    local field = all[index]
    local mark, offset = string.match(field, '^(%??)(%d+)$')
    local prepared = mark ~= ''
    if prepared and is_moving[offset] == 'prepared' or not prepared and (is_moving[offset] or is_held(tonumber(offset)))
    then
      fields[#fields + 1] = field
      bytes = bytes + #all[index + 1]
    else
      write('HDEL', PROPERTIES, field)
    end
  end
  if bytes ~= ledger.properties then
    ledger.properties = bytes
    redis.call('HSET', META, 'properties', num(bytes))
  end
  return #fields > 0 and fields or nil
end

operations.take_snapshot = function(op)
  if op.close then
    write('HSET', META, 'closed', '1')
  end
  local waiting, deferred, moving, scheduled = {}, {}, {}, {}
  for _, member in ipairs(redis.call('ZRANGE', REDELIVERABLE, 0, -1)) do
    local first, last, count = split_returned(member)
    waiting[#waiting + 1] = { num(first), num(last), num(count) }
  end
  for _, member in ipairs(redis.call('ZRANGE', DEFERRED, 0, -1)) do
    local offset, count = split_deferred(member)
    deferred[#deferred + 1] = { num(offset), num(offset), num(count) }
  end
  if SESSIONS then
    each_chunk(nil, function(_, text)
      for _, run in ipairs(split_chunk(text)) do
        waiting[#waiting + 1] = { num(run[1]), num(run[2]), num(run[3]) }
      end
    end)
  end
  for _, id in ipairs(redis.call('HKEYS', LEASES)) do
    for _, segment in ipairs(leased(id)) do
      local home = segment.kind == 'd' and deferred or waiting
      each_open(segment, function(first, last) home[#home + 1] = { num(first), num(last), num(delivered(segment)) } end)
    end
  end
  for _, member in ipairs(redis.call('ZRANGE', SCHEDULED, 0, -1)) do
    local offset, at = split_scheduled(member)
    scheduled[#scheduled + 1] = { num(offset), num(at) }
  end
  local postponed, times = {}, has_postponed() and redis.call('ZRANGE', WAKES, 0, -1, 'WITHSCORES') or {}
  local wakes = {}
  for index = 1, #times, 2 do
    wakes[tonumber(times[index])] = times[index + 1]
  end
  for _, member in ipairs(has_postponed() and redis.call('ZRANGE', POSTPONED, 0, -1) or {}) do
    local offset, count = split_postponed(member)
    postponed[#postponed + 1] = { num(offset), num(tonumber(wakes[offset] or 0)) }
    if not SESSIONS then
      waiting[#waiting + 1] = { num(offset), num(offset), num(count) }
    end
  end
  local states, prepared = redis.call('HGETALL', MOVING), 0
  for index = 1, #states, 2 do
    local count, intent = split_move(states[index + 1])
    moving[#moving + 1] = { states[index], count, intent }
    prepared = prepared + (is_prepared(intent) and 1 or 0)
  end
  ledger.moving = #moving - prepared
  return {
    cursor = num(ledger.cursor), version = num(ledger.version), has_message_ttl = ledger.has_message_ttl or nil,
    epoch = ledger.epoch ~= '' and ledger.epoch or nil,
    waiting = waiting, deferred = deferred, moving = moving,
    skipped = redis.call('ZRANGEBYSCORE', SKIPPED, num(ledger.cursor), '+inf'),
    dedup_upto = DUPLICATES and num(math.max(ledger.dedup_upto, ledger.dedup_checkpoint)) or nil,
    schedules = ledger.schedules or nil, scheduled = scheduled, postponed = postponed,
    dedup_epoch = DUPLICATES and ledger.dedup_epoch >= 0 and num(ledger.dedup_epoch) or nil,
    duplicates = DUPLICATES and redis.call('ZRANGE', DUPLICATES, 0, -1) or nil,
    changed = ledger.properties > 0 and fields_of_changed({ waiting, deferred }, moving) or nil,
  }
end
