-- Messages by offset: deferred ones are locked, waiting ones seized.
--
-- Defines
--   recall {lease, ranges, lock_ms, session}  deferred messages are locked, all of them or none; with session (true)
--          by a lease that locks one. Only reading the messages shows whether they are of that session
--          Reply: {"missing": [[first, last], …]}  not deferred: nothing was changed
--                 {"missing": [], "gone": true}    the session's lock has expired
--                 {"missing": [], "again": [[first, last, count], …], "expiry": ms,
--                  "stale_rules": true if the caller goes by rules that were changed since (rules, as of claim)}
--   seize  {lease, ranges, lock_ms, from, upto, epoch, epoch_to, rules, session}  all that wait in the ranges are
--          locked: never granted, returned, postponed, filed or deferred. If the caller has seen every record from
--          `from` to before `upto`, and the ranges hold all messages among them, the cursor moves on to `upto`.
--          Otherwise messages locked beyond the cursor are void for claims. Messages beyond the cursor are left alone
--          if duplicates are detected and they are not judged yet, or if they were chosen by rules that were changed
--          since (rules and epochs as of claim). With session, the lease that locks one of which the messages are,
--          only while it does
--          Reply: {"again": [[first, last, count, kind], …], "expiry": ms}
--                 {"gone": true}  the session's lock has expired
--                 {"full": limit}  claims would have to leave out more messages beyond the cursor than ahead_limit, if
--                                  it is given: nothing was done
--   seize_undeliverable {lease, count, lock_ms, limit}  up to limit returned ranges that were delivered so often,
--          or more often, are locked; reply as of seize

-- Delivery count of a deferred message; nothing if it is not deferred.
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
  write_lease(op.lease, segments, op.by)
  local again = {}
  for index, segment in ipairs(segments) do
    write('ZREMRANGEBYSCORE', DEFERRED, num(segment.first), num(segment.last))
    again[index] = { num(segment.first), num(segment.last), num(segment.count) }
  end
  return {
    missing = {}, again = again, expiry = num(held and held.expiry or now + op.lock_ms),
    stale_rules = has_stale_rules(op) or nil,
  }
end

-- Leases segments, takes them out of their homes afterwards (leave), none of them postponed any more, and returns the
-- reply.
local function lock_segments(op, segments, leave)
  for _, segment in ipairs(segments) do
    segment.expiry, segment.bits = now + op.lock_ms, ''
  end
  if #segments > 0 then
    write_lease(op.lease, segments, op.by)
  end
  local again = {}
  for index, segment in ipairs(segments) do
    leave(segment)
    forget_postponed(segment.first, segment.last)
    again[index] = { num(segment.first), num(segment.last), num(segment.count), segment.kind }
  end
  return { again = again, expiry = num(now + op.lock_ms) }
end

operations.seize = function(op)
  expire_leases()
  if op.session and not locked_by(op.session) then
    return { gone = true }
  end
  local outdated = has_stale_rules(op)
  local moves = op.upto and op.from <= ledger.cursor and not not_deduplicated(op.upto) and not outdated
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
      if not member and not SESSIONS then
        count = postponed_at(offset)
        member = count and 'postponed'
      end
      if member then
        add(offset, count, 'n', member)
      elseif offset >= ledger.cursor then
        if not (outdated or not_deduplicated(offset + 1) or redis.call('ZSCORE', SKIPPED, num(offset))) then
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
  if op.ahead_limit and not moves then
    write('ZREMRANGEBYSCORE', SKIPPED, '-inf', '(' .. num(ledger.cursor))
    local ahead = redis.call('ZCARD', SKIPPED)
    for _, segment in ipairs(segments) do
      ahead = ahead + (segment.home == 'log' and segment.last - segment.first + 1 or 0)
    end
    if ahead > op.ahead_limit then
      return { full = op.ahead_limit }
    end
  end
  local reply = lock_segments(op, segments, function(segment)
    if segment.home == 'deferred' then
      write('ZREMRANGEBYSCORE', DEFERRED, num(segment.first), num(segment.last))
    elseif segment.home == 'log' then
      ledger.in_flight = ledger.in_flight + segment.last - segment.first + 1
      if not moves then
        for offset = segment.first, segment.last do
          write('ZADD', SKIPPED, num(offset), num(offset))
        end
        ledger.skipped = 1
      end
    elseif segment.home ~= 'session' and segment.home ~= 'postponed' then
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

operations.seize_undeliverable = function(op)
  expire_leases()
  local segments = {}
  for _, member in ipairs(redis.call('ZRANGE', REDELIVERABLE, 0, 999)) do
    local first, last, count = split_returned(member)
    if count >= op.count and #segments < op.limit then
      segments[#segments + 1] = { first = first, last = last, count = count, kind = 'n', home = member }
    end
  end
  return lock_segments(op, segments, function(segment) write('ZREM', REDELIVERABLE, segment.home) end)
end
