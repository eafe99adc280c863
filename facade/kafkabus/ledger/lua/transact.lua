-- Settlements that are part of a transaction: prepared, and carried out or taken back once it is known what became of
-- it.
--
-- A message that is prepared is moving, with an intent of its own:
-- "prepared:<verb>:<lease>:<kind>:<expiry ms>:<transaction>". No expiry touches it, and whoever finds it late (adopt)
-- can tell by the transaction's marker what is to become of it.
--
-- Defines
--   prepare  {items, transaction, orphan_ms, limit}  items is [{lease, ranges, verb}, …], verb one of complete,
--            abandon and defer: the messages leave their leases, all of them or, where any is not there any more, none.
--            Reply: {"lost": [[[first, last], …], …]} by item; also "full": limit where more would be set aside
--   commit   {ranges, transaction}    those that this transaction prepared are settled, as it says. Reply: {}
--   rollback {ranges, transaction}    they are their lease's again; where that has expired, they are available again,
--            or set aside again, the delivery counted. Reply: {}

local function join_prepared(verb, lease, segment, transaction)
  return 'prepared:' .. verb .. ':' .. lease .. ':' .. segment.kind .. ':' .. num(segment.expiry) .. ':' .. transaction
end

operations.prepare = function(op)
  local lost, missing, coming = {}, 0, 0
  for index, item in ipairs(op.items) do
    local found
    found, lost[index] = select(item.lease, item.ranges, function() end)
    missing = missing + #lost[index]
    coming = coming + (item.verb == 'defer' and found or 0)
  end
  if missing > 0 then
    return { lost = lost }
  end
  if coming > 0 and redis.call('ZCARD', DEFERRED) + coming > op.limit then
    return { lost = lost, full = op.limit }
  end
  for _, item in ipairs(op.items) do
    take(item.lease, item.ranges, function(first, last, segment)
      local intent = join_prepared(item.verb, item.lease, segment, op.transaction)
      for offset = first, last do
        -- In this order, as begin does it.
        move_until(offset, now + op.orphan_ms)
        write('HSET', MOVING, num(offset), num(segment.count) .. '|' .. intent)
      end
    end)
  end
  return { lost = lost }
end

-- Calls visit(offset, verb, lease, segment) for each message that a transaction prepared, which says where it goes;
-- afterwards it is moving no more.
local function resolve(op, visit)
  local resolved, holders = {}, {}
  for _, range in ipairs(read_ranges(op.ranges)) do
    for offset = range[1], range[2] do
      local count, intent = split_move(redis.call('HGET', MOVING, num(offset)) or '')
      local verb, lease, kind, expiry, transaction =
        string.match(intent or '', '^prepared:(%a+):(%x+):([nds]):(%d+):(.*)$')
      if transaction == op.transaction then
        holders[lease] = holder(lease) or nil
        visit(offset, verb, lease, {
          first = offset, last = offset, count = tonumber(count), kind = kind, expiry = tonumber(expiry), bits = '',
          held = holders[lease],
        })
        resolved[#resolved + 1] = offset
      end
    end
  end
  arrive()
  for _, offset in ipairs(resolved) do
    write('HDEL', MOVING, num(offset))
    write('ZREM', MOVES, padded(offset))
  end
  for lease, held in pairs(holders) do
    -- Where it expired meanwhile, it is looked at with the next request.
    if held.expiry <= now then
      write('ZADD', EXPIRIES, num(held.expiry), lease)
    end
  end
end

operations.commit = function(op)
  resolve(op, function(offset, verb, _, segment)
    if verb == 'complete' then
      ledger.held = ledger.held - 1
    elseif verb == 'defer' then
      set_aside(offset, offset, segment.count)
    else
      put_back(segment, offset, offset, segment.count + 1)
    end
  end)
  return {}
end

-- A message is in its lease again, where what was settled of the lease meanwhile may have left a gap for it, or not.
local function rejoin(id, segment)
  local segments = leased(id)
  for _, one in ipairs(segments) do
    if one.first <= segment.first and segment.first <= one.last then
      if one.bits == '' then
        return
      end
      local at = segment.first - one.first + 1
      one.bits = string.sub(one.bits, 1, at - 1) .. '0' .. string.sub(one.bits, at + 1)
      return store_lease(id, segments)
    end
  end
  segments[#segments + 1] = segment
  table.sort(segments, function(a, b) return a.first < b.first end)
  store_lease(id, segments)
end

operations.rollback = function(op)
  resolve(op, function(offset, _, lease, segment)
    local expiry = segment.held and segment.held.expiry or segment.expiry
    if expiry > now then
      rejoin(lease, segment)
    else
      put_back(segment, offset, offset, segment.count + 1)
    end
  end)
  return {}
end
