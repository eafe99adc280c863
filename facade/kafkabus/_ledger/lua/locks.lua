-- The locks of messages and sessions, as operators see them and end them.
--
-- Defines
--   list_locks  {from, limit}       locked messages from an offset on, and the locks of sessions
--          Reply: {"locks": [[first, last, count, kind, expiry, since, by, session], …], "more": true if there are
--                  more than limit, "sessions": [[session, expiry, since, by], …]}  in the log's order, kind "d" if
--                  they are deferred; since (ms) and by are empty if the receiver did not say who it is; session is
--                  there if it has the lock
--   break_lock  {offset, session}   the lock of a message, or of a session and all messages that it was granted, ends
--          as if it had expired: deliveries are counted, and its holder can settle nothing any more
--          Reply: {"broken": true} | {"session": name}  which has the lock of this message | {}  it is not locked

-- Calls visit(first, last, segment, id, held) for the messages of all leases but that of messages that are being filed
-- in their sessions, which are in no receiver's hands.
local function each_locked(visit)
  for _, id in ipairs(redis.call('HKEYS', LEASES)) do
    local segments, held = leased(id)
    for _, segment in ipairs((held or not SESSIONS) and segments or {}) do
      each_open(segment, function(first, last) visit(first, last, segment, id, held) end)
    end
  end
end

operations.list_locks = function(op)
  expire_leases()
  local found = {}
  each_locked(function(first, last, segment, _, held)
    if last >= op.from then
      local taken = held or segment
      found[#found + 1] = {
        math.max(first, op.from), last, num(segment.count), segment.kind, num(segment.expiry),
        taken.since and num(taken.since) or '', taken.by or '', held and held.name or nil,
      }
    end
  end)
  table.sort(found, function(a, b) return a[1] < b[1] end)
  local more = found[op.limit + 1] and true or nil
  for index = #found, 1, -1 do
    local lock = found[index]
    lock[1], lock[2] = num(lock[1]), num(lock[2])
    if index > op.limit then
      found[index] = nil
    end
  end
  local sessions = {}
  for _, id in ipairs(SESSIONS and redis.call('HKEYS', HOLDERS) or {}) do
    local held = locked_by(id)
    if held then
      sessions[#sessions + 1] = { held.name, num(held.expiry), held.since and num(held.since) or '', held.by }
    end
  end
  return { locks = found, more = more, sessions = sessions }
end

-- Ends the lock of a session. Returns whether it was locked.
local function break_session(name)
  local session = SESSIONS and session_at(name)
  local held = session and locked_by(session.lease)
  if held then
    expire_holder(session.lease, held, 1)
  end
  return held and true or false
end

-- The lease of a message, and the session's lock if it is the lease of one; nothing if no receiver has it locked.
local function lease_of(offset)
  local found, lock
  each_locked(function(first, last, _, id, held)
    if first <= offset and offset <= last then
      found, lock = id, held
    end
  end)
  return found, lock
end

operations.break_lock = function(op)
  expire_leases()
  local broken = false
  if op.session then
    broken = break_session(op.session)
  else
    local id, held = lease_of(op.offset)
    if held then
      return { session = held.name }
    elseif id then
      take(id, { { op.offset, op.offset } }, function(first, last, segment)
        put_back(segment, first, last, delivered(segment))
      end)
      broken = true
    end
  end
  if broken then
    -- Upkeep looks whether messages were delivered too often.
    ledger.due = now
  end
  return { broken = broken or nil }
end
