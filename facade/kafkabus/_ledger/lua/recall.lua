-- Messages by offset: deferred ones are locked, waiting ones seized or thrown away, all are looked at.
--
-- Defines
--   recall {lease, ranges, lock_ms, session}  deferred messages are locked, all of them or none; with session (true)
--          by a lease that locks one. Whether they are of that session nobody knows before they are read
--          Reply: {"missing": [[first, last], …]}  not deferred: nothing was changed
--                 {"missing": [], "gone": true}    the session's lock has expired
--                 {"missing": [], "again": [[first, last, count], …], "expiry": ms, "ruled": true where the caller
--                  goes by rules that were changed since (rules, as of claim)}
--   seize  {lease, ranges, lock_ms, from, upto, epoch, epoch_to, rules}  whatever waits in the ranges is locked: never
--          granted, returned, filed or deferred. Where the caller has seen every record from `from` to before `upto`,
--          and the ranges hold all messages among them, the cursor moves on to there. Without, what lies beyond the
--          cursor is void for claims. Left alone is what is not judged, where duplicates are detected, and what lies
--          beyond the cursor where it was chosen by rules that were changed since (rules and epochs as of claim)
--          Reply: {"again": [[first, last, count, kind], …], "expiry": ms}
--   hopeless {lease, count, lock_ms, limit}  returned ranges that were delivered so often are locked; reply as of seize
--   mark   {name}                    what the log may hold: mortal, messages with times to live of their own;
--          schedules, scheduled ones; transacts, records of transactions. Reply: {}
--   rule   {version, end}            nothing is granted any more that was chosen by earlier rules than these, which
--          count from the end of the log on, or from the cursor where that is beyond
--          Reply: {"from": offset}   from where they do: who said so first is right
--   peek   {from, limit, session}    up to limit messages that are not settled, oldest first; beyond the cursor the
--          scheduled ones alone; with session (a name), none that is known to be of another one
--          Reply: {"cursor": offset, "found": [[first, last, kind, count], …], "voids": [offset, …]}  kind is "d" where
--                 they are deferred, "t" where they are scheduled, else "n"; voids are records beyond the cursor that
--                 are no messages, or none yet
--   purge  {upto, limit}             what waits below upto is done with, except where it is leased or deferred
--          Reply: {"purged": count, "more": true where more than limit returned ranges were there}

-- Delivery count of a deferred message, nothing where it is not deferred.
local function deferred_at(offset)
  local member = redis.call('ZRANGEBYSCORE', DEFERRED, num(offset), num(offset), 'LIMIT', 0, 1)[1]
  if member then
    local _, count = split_deferred(member)
    return count
  end
end

operations.recall = function(op)
  expire_leases()
  local missing, segments, held = {}, {}, locked_by(op.lease)
  if op.session and not held then
    return { missing = {}, gone = true }
  end
  for _, range in ipairs(op.ranges) do
    for offset = range[1], range[2] do
      local count = deferred_at(offset)
      local previous = segments[#segments]
      if not count then
        missing[#missing + 1] = { num(offset), num(offset) }
      elseif previous and previous.last == offset - 1 and previous.count == count then
        previous.last = offset
      else
        segments[#segments + 1] = {
          first = offset, last = offset, count = count, kind = 'd', expiry = now + op.lock_ms, bits = '',
        }
      end
    end
  end
  if #missing > 0 then
    return { missing = missing }
  end
  write_lease(op.lease, segments)
  local again = {}
  for index, segment in ipairs(segments) do
    write('ZREMRANGEBYSCORE', DEFERRED, num(segment.first), num(segment.last))
    again[index] = { num(segment.first), num(segment.last), num(segment.count) }
  end
  return {
    missing = {}, again = again, expiry = num(held and held.expiry or now + op.lock_ms), ruled = outruled(op) or nil,
  }
end

-- Leases segments that their homes give up afterwards, and says so.
local function lock_segments(op, segments, leave)
  for _, segment in ipairs(segments) do
    segment.expiry, segment.bits = now + op.lock_ms, ''
  end
  if #segments > 0 then
    write_lease(op.lease, segments)
  end
  local again = {}
  for index, segment in ipairs(segments) do
    leave(segment)
    again[index] = { num(segment.first), num(segment.last), num(segment.count), segment.kind }
  end
  return { again = again, expiry = num(now + op.lock_ms) }
end

operations.seize = function(op)
  expire_leases()
  local outdated = outruled(op)
  local moves = op.upto and op.from <= ledger.cursor and not unjudged(op.upto) and not outdated
  local segments, chunks = {}, {}
  local function add(offset, count, kind, home)
    local previous = segments[#segments]
    if previous and previous.last == offset - 1 and previous.count == count and previous.home == home then
      previous.last = offset
    else
      segments[#segments + 1] = { first = offset, last = offset, count = count, kind = kind, home = home }
    end
  end
  for _, range in ipairs(op.ranges) do
    for offset = range[1], range[2] do
      local member, _, _, count = returned_at(offset)
      if member then
        add(offset, count, 'n', member)
      elseif offset >= ledger.cursor then
        if not (outdated or unjudged(offset + 1) or redis.call('ZSCORE', VOIDS, num(offset))) then
          add(offset, 0, 'n', 'log')
        end
      else
        count = deferred_at(offset)
        if count then
          add(offset, count, 'd', 'deferred')
        end
      end
    end
  end
  if SESSIONS then
    each_chunk(nil, function(name, text, field)
      local inside = common_runs(split_chunk(text), op.ranges)
      for _, run in ipairs(inside) do
        segments[#segments + 1] = { first = run[1], last = run[2], count = run[3], kind = 'n', home = 'session' }
      end
      if #inside > 0 then
        chunks[#chunks + 1] = { name, field }
      end
    end)
  end
  local reply = lock_segments(op, segments, function(segment)
    if segment.home == 'deferred' then
      write('ZREMRANGEBYSCORE', DEFERRED, num(segment.first), num(segment.last))
    elseif segment.home == 'log' then
      ledger.held = ledger.held + segment.last - segment.first + 1
      if not moves then
        for offset = segment.first, segment.last do
          write('ZADD', VOIDS, num(offset), num(offset))
        end
        ledger.voids = 1
      end
    elseif segment.home ~= 'session' then
      leave_returned(segment.first, segment.last)
    end
  end)
  for _, chunk in ipairs(chunks) do
    cut_chunk(chunk[1], chunk[2], op.ranges)
  end
  if moves then
    pass(op, math.max(ledger.cursor, op.upto))
  end
  return reply
end

operations.hopeless = function(op)
  expire_leases()
  local segments = {}
  for _, member in ipairs(redis.call('ZRANGE', RETURNED, 0, 999)) do
    local first, last, count = split_returned(member)
    if count >= op.count and #segments < op.limit then
      segments[#segments + 1] = { first = first, last = last, count = count, kind = 'n', home = member }
    end
  end
  return lock_segments(op, segments, function(segment) write('ZREM', RETURNED, segment.home) end)
end

operations.mark = function(op)
  if op.name == 'schedules' then
    ledger.schedules = true
  else
    write('HSET', META, op.name, '1')
  end
  return {}
end

operations.rule = function(op)
  local from = redis.call('HGET', META, 'ruled_from')
  -- A ledger that was made anew knows the version, and not from where on it counts.
  if op.version > ledger.rules or not from then
    from = num(math.max(op['end'], ledger.cursor))
    ledger.rules = math.max(ledger.rules, op.version)
    write('HSET', META, 'ruled_from', from, 'rules', num(ledger.rules))
  end
  return { from = from }
end

operations.peek = function(op)
  local found = {}
  local function add(first, last, kind, count)
    if last >= op.from then
      found[#found + 1] = { math.max(first, op.from), last, kind, count }
    end
  end
  local function add_returned(members)
    for _, member in ipairs(members) do
      local first, last, count = split_returned(member)
      add(first, last, 'n', count)
    end
  end
  add_returned(redis.call('ZREVRANGEBYSCORE', RETURNED, '(' .. num(op.from), '-inf', 'LIMIT', 0, 1))
  add_returned(redis.call('ZRANGEBYSCORE', RETURNED, num(op.from), '+inf', 'LIMIT', 0, op.limit))
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', DEFERRED, num(op.from), '+inf', 'LIMIT', 0, op.limit)) do
    local offset, count = split_deferred(member)
    add(offset, offset, 'd', count)
  end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', SCHEDULED, num(op.from), '+inf', 'LIMIT', 0, op.limit)) do
    local offset = split_deferred(member)
    add(offset, offset, 't', 0)
  end
  for _, id in ipairs(redis.call('HKEYS', LEASES)) do
    local segments, held = leased(id)
    if not (op.session and held) or held.name == op.session then
      for _, segment in ipairs(segments) do
        each_open(segment, function(first, last) add(first, last, segment.kind, segment.count) end)
      end
    end
  end
  if SESSIONS then
    each_chunk(op.session, function(_, text)
      for _, run in ipairs(split_chunk(text)) do
        add(run[1], run[2], 'n', run[3])
      end
    end)
  end
  table.sort(found, function(a, b) return a[1] < b[1] end)
  local ranges, room = {}, op.limit
  for index, run in ipairs(found) do
    if room <= 0 then
      break
    end
    local last = math.min(run[2], run[1] + room - 1)
    ranges[index] = { num(run[1]), num(last), run[3], num(run[4]) }
    room = room - (last - run[1] + 1)
  end
  local voids = redis.call('ZRANGEBYSCORE', VOIDS, num(ledger.cursor), '+inf')
  return { cursor = num(ledger.cursor), found = ranges, voids = voids }
end

operations.purge = function(op)
  local purged = 0
  if SESSIONS then
    local below = { { 0, op.upto - 1 } }
    each_chunk(nil, function(name, _, field) purged = purged + cut_chunk(name, field, below) end)
  end
  local members = redis.call('ZRANGEBYSCORE', RETURNED, '-inf', '(' .. num(op.upto), 'LIMIT', 0, op.limit)
  for _, member in ipairs(members) do
    local first, last, count = split_returned(member)
    if last >= op.upto then
      give_back(op.upto, last, count)
      last = op.upto - 1
    end
    write('ZREM', RETURNED, member)
    purged = purged + last - first + 1
  end
  ledger.held = ledger.held - purged
  if op.upto > ledger.cursor then
    purged = purged + op.upto - ledger.cursor
    ledger.cursor = op.upto
  end
  return { purged = num(purged), more = #members == op.limit }
end
