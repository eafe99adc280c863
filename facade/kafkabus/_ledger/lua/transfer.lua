-- Transfers of a message into another log: an intent that any client can finish.
--
-- Defines
--   begin_transfer {lease, ranges, intent, orphan_ms, change}  the messages leave the lease and are moving; intent
--         (text) says where to; change as of settle.lua. Reply: {"lost": [[first, last], …]}
--   end_transfer {offset, at, keep_ms}  the copy is stored at offset `at` of the destination. The first one wins.
--         Reply: {"winner": offset there}, or {} if the ledger knows nothing of it any more
--   adopt_transfers {limit, orphan_ms}  transfers whose owner is late become the caller's, in the order in which
--         they began, those that began together in the log's order.
--         Reply: {"orphans": [[offset, count, intent], …], "more": true if there may be more}; limit also counts
--         transfers that ended and are forgotten now. The ledger notes which are late
--   note_refusal {offset, bytes}  the destination does not accept a copy of this size, which is tried
--         again like that of any late transfer. Reply: {"new": true if that was not noted before}
--   retreat {offset, intent, gone}  the transfer cannot be made: if the message has this intent still, it
--         waits again; with gone (true) it is done with, because the log does not have it any more. Reply: {}
--   skip_record {offset}  the record is a copy that lost: no claim grants it.
--         Reply: {"skip": true}, or {"skip": false} if it was granted already (a duplicate, not a loss)

-- Delivery count and intent of a transfer that is under way.
local function split_move(state)
  return string.match(state, '^' .. MOVE_FORM .. '$')
end

-- Whether an intent is a transaction's (transaction.lua), and no transfer's.
local function is_prepared(intent)
  return string.find(intent, '^' .. PREPARED_FORM .. '$') ~= nil
end

-- Sets when a transfer wants attention: it begins, passes to another client, or ends.
local function move_until(offset, at)
  write('ZADD', MOVES, num(at), padded(offset))
end

-- How many late transfers are noted.
local MOST_LATE = 100

-- Since when a transfer is late, and the size of a copy that its destination refuses, else 0; nothing if that is not
-- noted.
local function late_since(offset)
  return string.match(ledger.late, ',' .. num(offset) .. ':(%d+):(%d+)')
end

-- Notes that a transfer is late, if few others are; returns whether it is noted now.
local function note_late(offset, bytes)
  local _, noted = string.gsub(ledger.late, ',', '')
  if noted < MOST_LATE then
    ledger.late = ledger.late .. join_late(offset, now, bytes)
  end
  return noted < MOST_LATE
end

-- Replaces the note about a late transfer, if there is one.
local function renote_late(offset, note)
  if ledger.late ~= '' then
    ledger.late = string.gsub(ledger.late, ',' .. num(offset) .. ':%d+:%d+', note, 1)
  end
end

operations.begin_transfer = function(op)
  return take_changed(op, function(first, last, segment)
    for offset = first, last do
      -- In this order, so that a client that looks for late transfers finds all that are under way.
      move_until(offset, now + op.orphan_ms)
      write('HSET', MOVING, num(offset), join_move(segment.count, op.intent))
    end
    ledger.moving = ledger.moving + last - first + 1
  end)
end

operations.end_transfer = function(op)
  local offset = num(op.offset)
  local winner = redis.call('HGET', MOVED, offset)
  local _, intent = split_move(redis.call('HGET', MOVING, offset) or '')
  local is_moving = intent and not is_prepared(intent)
  if not winner and not is_moving then
    return {}
  end
  if not winner then
    winner = num(op.at)
    move_until(op.offset, now + op.keep_ms)
    write('HSET', MOVED, offset, winner)
  end
  -- If there was a winner and the message is still moving, a script that died left it so.
  if is_moving then
    write('HDEL', MOVING, offset)
    renote_late(op.offset, '')
    ledger.in_flight, ledger.moving = ledger.in_flight - 1, ledger.moving - 1
    forget_properties({ { op.offset, op.offset } })
  end
  return { winner = winner }
end

operations.adopt_transfers = function(op)
  local orphans = {}
  local members = redis.call('ZRANGEBYSCORE', MOVES, '-inf', num(now), 'LIMIT', 0, op.limit)
  for _, member in ipairs(members) do
    local offset = tonumber(member)
    local state = redis.call('HGET', MOVING, num(offset))
    if state then
      local count, intent = split_move(state)
      move_until(offset, now + op.orphan_ms)
      if not late_since(offset) then
        note_late(offset, 0)
      end
      orphans[#orphans + 1] = { num(offset), count, intent }
    else
      write('HDEL', MOVED, num(offset))
      write('ZREM', MOVES, member)
    end
  end
  return { orphans = orphans, more = #members == op.limit }
end

operations.note_refusal = function(op)
  local _, intent = split_move(redis.call('HGET', MOVING, num(op.offset)) or '')
  if not intent or is_prepared(intent) then
    return { new = false }
  end
  local since, bytes = late_since(op.offset)
  if not since then
    return { new = note_late(op.offset, op.bytes) }
  end
  renote_late(op.offset, join_late(op.offset, since, op.bytes))
  return { new = bytes == '0' }
end

operations.retreat = function(op)
  local offset = num(op.offset)
  local count, intent = split_move(redis.call('HGET', MOVING, offset) or '')
  if intent == op.intent then
    if op.gone then
      ledger.in_flight = ledger.in_flight - 1
    else
      give_back(op.offset, op.offset, tonumber(count))
    end
    ledger.moving = ledger.moving - 1
    write('HDEL', MOVING, offset)
    write('ZREM', MOVES, padded(op.offset))
    renote_late(op.offset, '')
  end
  return {}
end

operations.skip_record = function(op)
  if op.offset >= ledger.cursor then
    write('ZADD', SKIPPED, num(op.offset), num(op.offset))
    ledger.skipped = 1
    return { skip = true }
  end
  local filed, only = 0, { { op.offset, op.offset } }
  if SESSIONS then
    each_chunk(nil, function(name, _, field) filed = filed + cut_chunk(name, field, only) end)
  end
  local is_returned = filed == 0 and returned_at(op.offset)
  if filed == 0 and not is_returned and (SESSIONS or not postponed_at(op.offset)) then
    return { skip = false }
  end
  if is_returned then
    leave_returned(op.offset, op.offset)
  end
  forget_postponed(op.offset, op.offset)
  ledger.in_flight = ledger.in_flight - 1
  return { skip = true }
end
