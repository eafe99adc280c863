-- Settlements that are part of a transaction: prepared, and carried out or taken back once its outcome is known.
--
-- A message that is prepared is moving, with a special intent (PREPARED_FORM of layout.lua). No expiry touches it,
-- and a client that finds it late (adopt_transfers) finds by the transaction's marker what is to become of it.
--
-- Defines
--   prepare  {items, transaction, orphan_ms, limit}  items is [{lease, ranges, verb, change}, …], verb one of complete,
--            abandon and defer: the messages leave their leases, all of them or, if any is not there any more, none.
--            change (as of settle.lua) is made with the settlement
--            Reply: {"lost": [[[first, last], …], …]} by item; also "full": limit if more would be set aside
--   commit   {ranges, transaction}    messages that this transaction prepared are settled, as it says. Reply: {}
--   rollback {ranges, transaction}    they are their lease's again; if that has expired, they are available again,
--            or set aside again, the delivery counted. Reply: {}

-- Marks changed properties that a transaction prepared.
local PREPARED_MARK = '?'

operations.prepare = function(op)
  local lost, missing, coming = {}, 0, 0
  for index, item in ipairs(op.items) do
    local found
    found, lost[index] = select_held(item.lease, item.ranges, function() end)
    missing = missing + #lost[index]
    coming = coming + (item.verb == 'defer' and found or 0)
  end
  if redis.call('HGET', META, 'closed') then
    -- The state of this ledger was copied; nothing may be part of it that the copy does not know.
    for index, item in ipairs(op.items) do
      lost[index] = read_ranges(item.ranges)
      for _, range in ipairs(lost[index]) do
        range[1], range[2], range[3] = num(range[1]), num(range[2]), nil
      end
    end
    return { lost = lost }
  end
  if missing > 0 then
    return { lost = lost }
  end
  if coming > 0 and redis.call('ZCARD', DEFERRED) + coming > op.limit then
    return { lost = lost, full = op.limit }
  end
  local texts, growth = {}, ledger.properties
  for index, item in ipairs(op.items) do
    local most
    texts[index], most = changed_properties(item.change, item.ranges, PREPARED_MARK)
    for _, text in pairs(texts[index] or {}) do
      growth = growth + #text
    end
    if most or growth > math.max(ledger.properties, MOST_PROPERTIES) then
      return { lost = lost, too_much = most or MOST_PROPERTIES }
    end
  end
  for index, item in ipairs(op.items) do
    take(item.lease, item.ranges, function(first, last, segment)
      local intent = join_prepared(item.verb, item.lease, segment.kind, segment.expiry, op.transaction)
      keep_properties(texts[index], first, last, PREPARED_MARK)
      for offset = first, last do
        -- In this order, as begin_transfer does it.
        move_until(offset, now + op.orphan_ms)
        write('HSET', MOVING, num(offset), join_move(segment.count, intent))
      end
    end)
  end
  return { lost = lost }
end

-- Calls visit(offset, verb, lease, segment) for each message that a transaction prepared, to put it in its place, and
-- then arrived(), if there is one; afterwards the messages are not moving any more.
local function resolve(op, visit, arrived)
  local resolved, holders = {}, {}
  for _, range in ipairs(read_ranges(op.ranges)) do
    for offset = range[1], range[2] do
      local count, intent = split_move(redis.call('HGET', MOVING, num(offset)) or '')
      local verb, lease, kind, expiry, transaction =
        string.match(intent or '', '^' .. PREPARED_FORM .. '$')
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
  if arrived then
    arrived()
  end
  for _, offset in ipairs(resolved) do
    write('HDEL', MOVING, num(offset))
    write('ZREM', MOVES, padded(offset))
    renote_late(offset, '')
  end
  for lease, held in pairs(holders) do
    -- If the lock has expired, the next request looks at it.
    if held.expiry <= now then
      write('ZADD', EXPIRIES, num(held.expiry), lease)
    end
  end
end

-- Makes the changes that were prepared of a message's properties, or drops them.
local function resolve_properties(offset, committed)
  local field = PREPARED_MARK .. num(offset)
  local change = ledger.properties > 0 and redis.call('HGET', PROPERTIES, field)
  if change then
    if committed then
      -- It was within the limits when it was prepared.
      local text = text_with(cjson.decode(change), offset)
      keep_properties({ [num(offset)] = text }, offset, offset)
    end
    forget_property(field)
  end
end

operations.commit = function(op)
  resolve(op, function(offset, verb, _, segment)
    resolve_properties(offset, true)
    if verb == 'complete' then
      ledger.in_flight = ledger.in_flight - 1
    elseif verb == 'defer' then
      set_aside(offset, offset, segment.count)
    else
      put_back(segment, offset, offset, segment.count + 1)
    end
  end)
  return {}
end

-- Puts messages back in their lease: in the gaps that they left in its segments, or as new segments if settlements
-- or renewals of the lease have removed these gaps.
local function rejoin(id, coming)
  local segments, index, added = leased(id), 1, {}
  for _, one in ipairs(coming) do
    while segments[index] and segments[index].last < one.first do
      index = index + 1
    end
    local there, before = segments[index], added[#added]
    if there and there.first <= one.first then
      local at = one.first - there.first + 1
      if there.bits ~= '' then
        there.bits = string.sub(there.bits, 1, at - 1) .. '0' .. string.sub(there.bits, at + 1)
      end
    elseif before and before.last == one.first - 1 and before.count == one.count and before.kind == one.kind
      and before.expiry == one.expiry then
      before.last = one.first
    else
      added[#added + 1] = one
    end
  end
  local other = segments[1]
  for _, one in ipairs(added) do
    -- All messages of a lease were received together; if none is left, its receiver is not known any more.
    one.since, one.by = other and other.since, other and other.by
    segments[#segments + 1] = one
  end
  table.sort(segments, function(a, b) return a.first < b.first end)
  store_lease(id, segments)
end

operations.rollback = function(op)
  local back = {}
  resolve(op, function(offset, _, lease, segment)
    resolve_properties(offset, false)
    local expiry = segment.held and segment.held.expiry or segment.expiry
    if expiry > now then
      back[lease] = back[lease] or {}
      table.insert(back[lease], segment)
    else
      put_back(segment, offset, offset, segment.count + 1)
    end
  end, function()
    for lease, coming in pairs(back) do
      rejoin(lease, coming)
    end
  end)
  return {}
end
