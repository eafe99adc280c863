-- Scheduled messages, whose time has not come. Their records are in the log as all others are, and are never granted:
-- once its time has come, each message is moved behind the log's end, where its copy is a message like any other.
--
-- Defines
--   schedule {items}         records of scheduled messages were stored: items is [[offset, when, ms], …], ascending.
--                            Those that the cursor passed already are postponed by their claimer. Reply: {}
--   schedule_held {lease, items}  messages of the lease turned out to be scheduled. Reply: {"lost": [[first, last], …]}
--   cancel   {offsets}       they are settled, unseen. Reply: {"missing": [offset, …]}  not scheduled, or no more
--   activate {limit, intent, orphan_ms, upto_ms}  transfers, as of operations.begin_transfer, begin of messages that
--                            are due at upto_ms, the time on the brokers' clock (none: on the ledger's). If
--                            duplicates are detected, records that were not scanned wait. Reply: {"begun": [offset, …]}

-- Offset and time of a member of the scheduled messages.
local function split_scheduled(member)
  local offset, at = string.match(member, '^' .. SCHEDULED_FORM .. '$')
  return tonumber(offset), tonumber(at)
end

-- Has a message wait for its time.
local function put_off(offset, at)
  write('ZADD', DUE, num(at), padded(offset))
  write('ZADD', SCHEDULED, num(offset), join_scheduled(offset, at))
  ledger.schedules = true
end

-- Ends a message's wait for its time. Returns whether it waited.
local function call_off(offset)
  local member = redis.call('ZRANGEBYSCORE', SCHEDULED, num(offset), num(offset), 'LIMIT', 0, 1)[1]
  if member then
    write('ZREM', DUE, padded(offset))
    write('ZREM', SCHEDULED, member)
  end
  return member
end

operations.schedule = function(op)
  for _, item in ipairs(op.items) do
    local offset = item[1]
    if offset >= ledger.cursor and not redis.call('ZSCORE', SKIPPED, num(offset)) then
      put_off(offset, item[2])
      write('ZADD', SKIPPED, num(offset), num(offset))
      ledger.skipped, ledger.in_flight = 1, ledger.in_flight + 1
    end
  end
  return {}
end

operations.schedule_held = function(op)
  local ranges, at = {}, {}
  for index, item in ipairs(op.items) do
    ranges[index], at[item[1]] = { item[1], item[1] }, item[2]
  end
  local _, lost = take(op.lease, ranges, function(first, last)
    for offset = first, last do
      put_off(offset, at[offset])
    end
  end)
  return { lost = lost }
end

operations.cancel = function(op)
  local missing = {}
  for _, offset in ipairs(op.offsets) do
    if call_off(offset) then
      ledger.in_flight = ledger.in_flight - 1
    else
      missing[#missing + 1] = num(offset)
    end
  end
  return { missing = missing }
end

operations.activate = function(op)
  local begun = {}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', DUE, '-inf', num(op.upto_ms or now), 'LIMIT', 0, op.limit)) do
    local offset = tonumber(member)
    -- A duplicate's copy may be stored after the window, and would be a message then.
    if not DUPLICATES or (offset < ledger.dedup_upto and not ledger.log_truncated) then
      begun[#begun + 1] = num(offset)
      move_until(offset, now + op.orphan_ms)
      write('HSET', MOVING, num(offset), join_move(0, op.intent))
      call_off(offset)
    end
  end
  ledger.moving = ledger.moving + #begun
  return { begun = begun }
end
