-- Postponed messages: returned ones that are not granted before a time. Their locks are given up and their place in
-- the log stays. In a ledger with sessions, such a message waits in its session all the same, and no message of the
-- session is granted that comes behind it.
--
-- Defines split_postponed, has_postponed, postponed_at, first_postponed, postpone, note_session and forget_postponed.

-- Offset, delivery count and session of a member of the postponed messages.
local function split_postponed(member)
  local offset, count, session = string.match(member, '^' .. POSTPONED_FORM .. '$')
  return tonumber(offset), tonumber(count), session
end

-- Whether any message may be postponed; Redis is asked once a request.
local any_postponed
local function has_postponed()
  if any_postponed == nil then
    any_postponed = redis.call('EXISTS', POSTPONED) == 1
  end
  return any_postponed
end

-- The first postponed message of a range of offsets: its member; nothing if there is none.
local function first_postponed(first, last)
  return has_postponed() and redis.call('ZRANGEBYSCORE', POSTPONED, num(first), num(last), 'LIMIT', 0, 1)[1]
end

-- Delivery count of a postponed message, and the session under which it is noted; nothing if it is not postponed.
local function postponed_at(offset)
  local member = first_postponed(offset, offset)
  if member then
    local _, count, session = split_postponed(member)
    return count, session
  end
end

-- Has a message wait for a time. The time is written first, so that no message waits without one.
local function postpone(offset, count, due, session)
  write('ZADD', WAKES, num(due), padded(offset))
  -- A script that died may have left it under another count.
  local before = first_postponed(offset, offset)
  local member = join_postponed(offset, count, session)
  write('ZADD', POSTPONED, num(offset), member)
  if before and before ~= member then
    write('ZREM', POSTPONED, before)
  end
  any_postponed = true
end

-- Notes the session of postponed messages of a range, which is known now that they are filed.
local function note_session(first, last, session)
  local members = has_postponed() and redis.call('ZRANGEBYSCORE', POSTPONED, num(first), num(last)) or {}
  for _, member in ipairs(members) do
    local offset, count = split_postponed(member)
    local noted = join_postponed(offset, count, session)
    if noted ~= member then
      write('ZADD', POSTPONED, num(offset), noted)
      write('ZREM', POSTPONED, member)
    end
  end
end

-- Forgets that messages of a range are postponed: they have another home, or are done with.
local function forget_postponed(first, last)
  local member = first_postponed(first, last)
  while member do
    write('ZREM', POSTPONED, member)
    write('ZREM', WAKES, padded(split_postponed(member)))
    member = first_postponed(first, last)
  end
end
