-- The snapshot of a ledger that is written down outside of Redis, so that the ledger can be rebuilt.
--
-- Defines
--   snapshot {close}  with close (true), no transaction prepares anything here any more.
--                Reply: {"cursor": offset, "version": number, "has_message_ttl": true, "epoch": number if known,
--                        "waiting": [[first, last, count], …]  granted and not settled: once Redis is lost, no client
--                                                              holds them; a delivery under way is counted
--                        "deferred": [[first, last, count], …], "moving": [[offset, count, intent], …],
--                        "schedules": true if any were, "scheduled": [[offset, when], …],
--                        "skipped": [offset, …]}                 all unordered; skipped includes seized messages
--                  and, if duplicates are detected, "dedup_upto": offset, "duplicates": [offset, …],
--                  "dedup_epoch": number if it is known

operations.snapshot = function(op)
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
    schedules = ledger.schedules or nil, scheduled = scheduled,
    dedup_epoch = DUPLICATES and ledger.dedup_epoch >= 0 and num(ledger.dedup_epoch) or nil,
    duplicates = DUPLICATES and redis.call('ZRANGE', DUPLICATES, 0, -1) or nil,
  }
end
