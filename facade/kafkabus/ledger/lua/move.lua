-- Transfers of a message into another log: an intent that anybody can finish.
--
-- Defines
--   begin {lease, ranges, intent, orphan_ms}  the messages leave the lease and are moving; intent (text) says where to.
--         Reply: {"lost": [[first, last], …]}
--   moved {offset, at, keep_ms}                the copy stands at offset `at` of the destination. The first one wins.
--         Reply: {"winner": offset there}, or {} where the ledger knows nothing of it any more
--   adopt {limit, orphan_ms}                   transfers whose owner is late become the caller's.
--         Reply: {"orphans": [[offset, count, intent], …]}
--   void  {offset}                             the record is a copy that lost: no claim grants it.
--         Reply: {"void": true}, or {"void": false} where it was granted already (a duplicate, not a loss)

operations.begin = function(op)
  local _, lost = take(op.lease, op.ranges, function(first, last, segment)
    for offset = first, last do
      write('HSET', MOVING, num(offset), 'B|' .. num(segment.count) .. '|' .. op.intent)
      write('ZADD', MOVES, num(now + op.orphan_ms), num(offset))
    end
  end)
  return { lost = lost }
end

operations.moved = function(op)
  local offset = num(op.offset)
  local state = redis.call('HGET', MOVING, offset)
  if not state then
    return {}
  end
  if string.sub(state, 1, 2) == 'E|' then
    return { winner = string.sub(state, 3) }
  end
  write('ZADD', MOVES, num(now + op.keep_ms), offset)
  write('HSET', MOVING, offset, 'E|' .. num(op.at))
  ledger.held = ledger.held - 1
  return { winner = num(op.at) }
end

operations.adopt = function(op)
  local orphans = {}
  for _, offset in ipairs(redis.call('ZRANGEBYSCORE', MOVES, '-inf', num(now), 'LIMIT', 0, op.limit)) do
    local state = redis.call('HGET', MOVING, offset)
    local count, intent = string.match(state or '', '^B|(%d+)|(.*)$')
    if count then
      write('ZADD', MOVES, num(now + op.orphan_ms), offset)
      orphans[#orphans + 1] = { offset, count, intent }
    else
      write('HDEL', MOVING, offset)
      write('ZREM', MOVES, offset)
    end
  end
  return { orphans = orphans }
end

operations.void = function(op)
  if op.offset >= ledger.cursor then
    write('ZADD', VOIDS, num(op.offset), num(op.offset))
    ledger.voids = 1
    return { void = true }
  end
  local filed, only = 0, { { op.offset, op.offset } }
  if SESSIONS then
    each_chunk(nil, function(name, _, field) filed = filed + cut_chunk(name, field, only) end)
  end
  if filed == 0 and not returned_at(op.offset) then
    return { void = false }
  end
  if filed == 0 then
    leave_returned(op.offset, op.offset)
  end
  ledger.held = ledger.held - 1
  return { void = true }
end
