-- Sessions: messages are filed under theirs, and granted to the client that has locked it, in the log's order.
--
-- In a rebuilt ledger, messages wait as returned ranges whose sessions are not known. A claim leases them to one client
-- at a time, which sorts them: it reads and places them. Until then nothing is granted, as they may come first.
-- The client sets messages that belong elsewhere apart, and moves them: they hold up no session. Messages that were
-- delivered to a session's holder too often wait as returned ranges too, until a client or upkeep dead-letters them.
--
-- Defines
--   file_messages {from, upto, runs, epoch, epoch_to, sessions, strays, lease, lock_ms, rules}  the caller has seen
--          every record from `from` to before `upto`: sessions is [[name, "<first>[-<last>],…", how many], …], strays
--          are runs of messages that belong elsewhere, or are scheduled, and are leased. runs is
--          [[upto - 1, upto - 1]] if the last record is a message, else []; epochs and rules as of claim
--          Reply: as of claim; "again" holds the strays
--   place_messages {lease, ranges, strays, apart, lock_ms}  messages of the lease wait in their sessions from now on,
--          no delivery counted; ranges is [[first, last, name], …], ascending. The strays among them, as ranges, are
--          leased by `apart` from now on. Reply: {"lost": [[first, last], …], "expiry": ms}  of the new lease
--   accept {lease, lock_ms, max_deliveries, session}  locks a session; without one, the one that has waited longest for
--          its turn. A message that goes back after `max_deliveries` deliveries does not go back to its session
--          Reply: {} if none waits, {"held": true} if another client has it, {"session": name, "expiry": ms}
--   grant_next {lease, want, rules}  the next messages of the session that the lease locks
--          Reply: {"gone": true} if the lease has expired, {"unfiled": true} if nothing may be granted yet,
--                 {"again": "<first>[-<last>][*<count>],…", "expiry": ms, "cursor": offset, "stale_rules":
--                  as of claim, "due": ms if it waits for the time of a postponed message}
--   extend {lease, lock_ms}           Reply: {"gone": true} or {"expiry": ms}
--   leave  {lease}                    the session is free; messages granted and not settled go back, uncounted.
--          Reply: {}
--   list_sessions {}  Reply: {"names": [name, …]}  that have messages waiting or are locked

-- Ranges, as claimable has them, as the text of a chunk.
local function join_uncounted(ranges)
  local parts = {}
  for index, range in ipairs(ranges) do
    parts[index] = join_run({ range[1], range[2], 0 })
  end
  return table.concat(parts, ',')
end

operations.file_messages = function(op)
  expire_leases()
  local reply, strays = { again = {}, fresh = {} }, {}
  if op.from > ledger.cursor then
    reply.ahead = true
  elseif has_stale_rules(op) then
    reply.stale_rules = true
  elseif not_deduplicated(op.upto) then
    reply.not_deduplicated = true
  elseif op.upto > ledger.cursor then
    local filed, clean = 0, op.from == ledger.cursor and ledger.skipped == 0
    for index, run in ipairs(claimable(op.strays, op.upto)) do
      filed = filed + run[2] - run[1] + 1
      strays[index] = { first = run[1], last = run[2], count = 0, kind = 's', expiry = now + op.lock_ms, bits = '' }
      reply.again[index] = { num(run[1]), num(run[2]), '0' }
    end
    if #strays > 0 then
      write_lease(op.lease, strays)
    end
    for _, one in ipairs(op.sessions) do
      local name, words, count = one[1], one[2], one[3]
      if not clean then
        words = join_uncounted(claimable(split_chunk(words), op.upto))
        count = words == '' and 0 or count_words(words)
      end
      if count > 0 then
        file_words(name, words)
        filed = filed + count
      end
    end
    ledger.in_flight = ledger.in_flight + filed
    pass(op, op.upto)
  end
  reply.expiry = num(now + op.lock_ms)
  return with_state(reply)
end

operations.place_messages = function(op)
  local strays, expiry = {}, now + op.lock_ms
  local found, _, left = select_held(op.lease, op.strays, function(first, last, segment)
    strays[#strays + 1] = { first = first, last = last, count = segment.count, kind = 's', expiry = expiry, bits = '' }
  end)
  if found > 0 then
    write_lease(op.apart, strays)
    store_lease(op.lease, left)
  end
  local index = 1
  local _, gone = take(op.lease, op.ranges, function(first, last, segment)
    while op.ranges[index][2] < first do
      index = index + 1
    end
    local name = op.ranges[index][3]
    note_session(first, last, name)
    go_home(name, first, last, segment.count)
  end, true)
  return { lost = gone, expiry = num(expiry) }
end

operations.accept = function(op)
  expire_leases()
  local name = op.session or redis.call('ZRANGE', FREE, 0, 0)[1]
  if not name then
    return {}
  end
  local session = session_at(name) or new_session(name)
  local other = session.lease ~= '' and holder(session.lease)
  if other and (other.expiry > now or in_doubt(session.lease)) then
    return { held = true }
  elseif other then
    dissolve(session.lease, other, 1)
    session = session_at(name) or new_session(name)
  end
  local expiry = num(now + op.lock_ms)
  session.lease = op.lease
  write('ZADD', EXPIRIES, expiry, op.lease)
  write_holder(op.lease, { max_deliveries = op.max_deliveries, name = name, since = op.by and now, by = op.by }, expiry)
  store_session(session)
  write('ZREM', FREE, name)
  return { session = name, expiry = expiry }
end

-- When the first message that waits in a session is due, if it is postponed.
local function due_of(session)
  local first = starts_postponed(session)
  return first and num(redis.call('ZSCORE', WAKES, padded(first)) or now)
end

operations.grant_next = function(op)
  expire_leases()
  local held = locked_by(op.lease)
  if not held then
    return { gone = true }
  end
  if unfiled() then
    return { unfiled = true }
  end
  local session = session_at(held.name)
  local granted, leaving, left = {}, {}, op.want
  while left > 0 do
    local field = chunk_field(session, session.low)
    local text = redis.call('HGET', SESSIONS, field)
    local rest = ''
    if text then
      local front, count, postponed
      front, rest, count = split_front(text, left)
      front, postponed = split_postponed_words(front)
      if postponed ~= '' then
        rest = postponed .. (rest ~= '' and ',' .. rest or '')
      end
      if front == '' then
        break
      end
      granted[#granted + 1], leaving[#leaving + 1], left = front, { field, rest }, left - count
    end
    if rest ~= '' or session.low == session.high then
      break
    end
    session.low = session.low + 1
  end
  local text = table.concat(granted, ',')
  if text ~= '' then
    lease_text(op.lease, text)
    for _, one in ipairs(leaving) do
      if one[2] ~= '' then
        write('HSET', SESSIONS, one[1], one[2])
      else
        write('HDEL', SESSIONS, one[1])
      end
    end
    store_session(session)
  end
  return {
    again = text, expiry = num(held.expiry), cursor = num(ledger.cursor),
    stale_rules = has_stale_rules(op) or nil, due = left > 0 and due_of(session) or nil,
  }
end

operations.extend = function(op)
  expire_leases()
  local held = locked_by(op.lease)
  if not held then
    return { gone = true }
  end
  local expiry = num(now + op.lock_ms)
  write_holder(op.lease, held, expiry)
  write('ZADD', EXPIRIES, expiry, op.lease)
  return { expiry = expiry }
end

operations.leave = function(op)
  expire_leases()
  local held = holder(op.lease)
  if held then
    operations.release({ lease = op.lease })
    expire_holder(op.lease, held, 0)
  end
  return {}
end

operations.list_sessions = function()
  local names = {}
  for _, field in ipairs(redis.call('HKEYS', SESSIONS)) do
    if string.sub(field, 1, 1) == '=' then
      names[#names + 1] = string.sub(field, 2)
    end
  end
  return { names = names }
end
