-- Leases as text, and messages that go back to where they came from.
--
-- Defines split_lease, leased, split_returned, split_deferred, each_open, give_back, returned_at, leave_returned,
-- set_aside, put_back, wake_postponed, store_lease, write_lease, lease_text, without, dissolve, in_doubt,
-- expire_holder, delivered and expire_leases.

local function split_lease(text)
  local segments = {}
  local form = '(%d+):(%d+):(%d+):([nds]):(%d+):([01]*):?(%d*):?([^|]*)'
  for first, last, count, kind, expiry, bits, since, by in string.gmatch(text, form) do
    segments[#segments + 1] = {
      first = tonumber(first), last = tonumber(last), count = tonumber(count), kind = kind,
      expiry = tonumber(expiry), bits = bits, since = tonumber(since), by = by,
    }
  end
  return segments
end

-- As split_lease, for a lease that locks a session: its messages lie apart and expire with the lock.
local function split_session_lease(text, held)
  local segments = {}
  for first, last, count, deferred in string.gmatch(text, RUN_FORM .. '(d?)') do
    first = tonumber(first)
    segments[#segments + 1] = {
      first = first, last = tonumber(last) or first, count = tonumber(count) or 0,
      kind = deferred == 'd' and 'd' or 'n', expiry = held.expiry, bits = '', held = held,
    }
  end
  return segments
end

-- The segments of a lease, and the session's lock if it is the lease of one.
local function leased(id)
  local text, held = redis.call('HGET', LEASES, id) or '', holder(id)
  if held then
    return split_session_lease(text, held), held
  end
  return split_lease(text)
end

-- First, last and count of a member of the returned ranges.
local function split_returned(member)
  local first, last, count = string.match(member, '^' .. RETURNED_FORM .. '$')
  return tonumber(first), tonumber(last), tonumber(count)
end

-- Offset and count of a member of the deferred messages.
local function split_deferred(member)
  local offset, count = string.match(member, '^' .. DEFERRED_FORM .. '$')
  return tonumber(offset), tonumber(count)
end

local function join_lease(segments)
  local parts = {}
  for index, segment in ipairs(segments) do
    parts[index] = num(segment.first) .. ':' .. num(segment.last) .. ':' .. num(segment.count) .. ':' .. segment.kind
      .. ':' .. num(segment.expiry) .. ':' .. segment.bits
      .. (segment.since and ':' .. num(segment.since) .. ':' .. segment.by or '')
  end
  return table.concat(parts, '|')
end

-- Calls visit(first, last) for each run of offsets that still belong to the lease.
local function each_open(segment, visit)
  if segment.bits == '' then
    return visit(segment.first, segment.last)
  end
  local from, to = string.find(segment.bits, '0+')
  while from do
    visit(segment.first + from - 1, segment.first + to - 1)
    from, to = string.find(segment.bits, '0+', to + 1)
  end
end

-- Segments as the text that split_session_lease reads.
local function join_session_lease(segments)
  local parts = {}
  for _, segment in ipairs(segments) do
    each_open(segment, function(first, last)
      parts[#parts + 1] = join_run({ first, last, segment.count }) .. (segment.kind == 'd' and 'd' or '')
    end)
  end
  return table.concat(parts, ',')
end

-- Makes messages available to be granted again. They may lie beyond the cursor: seized there, or leased by a request
-- that died before it moved the cursor. The cursor stays where it is, because nothing is known of the records before
-- them.
local function give_back(first, last, count)
  write('ZADD', REDELIVERABLE, num(first), join_returned(first, last, count))
  ledger.notify = true
end

-- The returned range that holds an offset: its member, first, last and count; nothing if there is none.
local function returned_at(offset)
  local member = redis.call('ZREVRANGEBYSCORE', REDELIVERABLE, num(offset), '-inf', 'LIMIT', 0, 1)[1]
  if member then
    local first, last, count = split_returned(member)
    if last >= offset then
      return member, first, last, count
    end
  end
end

-- Takes offsets out of the returned range that holds them; the rest of it stays to be granted again.
local function leave_returned(from, upto)
  local member, first, last, count = returned_at(from)
  if first < from then
    give_back(first, from - 1, count)
  end
  if last > upto then
    give_back(upto + 1, last, count)
  end
  write('ZREM', REDELIVERABLE, member)
end

-- Sets messages aside, granted by offset only. A message that was there before, under another count, is granted once.
local function set_aside(first, last, count)
  for offset = first, last do
    write('ZADD', DEFERRED, num(offset), join_deferred(offset, count))
  end
end

-- When messages that were delivered so often are available again by the entity's retry policy, ms; nothing without one.
local policy
local function retry_at(count)
  if not policy then
    policy = ARGV[5] and cjson.decode(ARGV[5]) or { delays = {}, most = 0 }
  end
  local delays = policy.delays
  return count < policy.most and now + (delays[count] or delays[#delays]) or nil
end

-- Returns messages of a lease to where they came from: the returned ranges, their session (arrive() puts them there),
-- or the deferred messages. Those that do not become deferred are postponed, if `due` is a time to come (by default
-- that of the retry policy, if this delivery is counted). A session's messages that were delivered too often become
-- returned ranges, for a client or upkeep to dead-letter.
local function put_back(segment, first, last, count, due)
  if count > segment.count then
    ledger.returned = ledger.returned + last - first + 1
    due = due or retry_at(count)
  end
  if segment.kind == 'd' then
    return set_aside(first, last, count)
  end
  local is_filed = segment.held and count < segment.held.max_deliveries
  local waits = due and due > now and (is_filed or not segment.held)
  if waits then
    for offset = first, last do
      postpone(offset, count, due, is_filed and segment.held.name or '')
    end
  end
  if is_filed then
    go_home(segment.held.name, first, last, count)
  elseif SESSIONS or not waits then
    give_back(first, last, count)
  end
end

-- How many postponed messages are woken at a time.
local WOKEN_AT_ONCE = 1000

-- The postponed messages whose time has come: their offsets, as the key wakes has them, as a set, as ranges with
-- delivery counts, and by session; and their members.
local function woken_messages()
  local offsets = redis.call('ZRANGEBYSCORE', WAKES, '-inf', num(now), 'LIMIT', 0, WOKEN_AT_ONCE)
  local woken, runs, names, members = {}, {}, {}, {}
  for _, padded_offset in ipairs(offsets) do
    local offset = tonumber(padded_offset)
    local member = first_postponed(offset, offset)
    if member then
      local _, count, name = split_postponed(member)
      local run = runs[#runs]
      if run and run[2] == offset - 1 and run[3] == count then
        run[2] = offset
      else
        runs[#runs + 1] = { offset, offset, count }
      end
      woken[offset], names[name], members[#members + 1] = true, true, member
    end
  end
  return offsets, woken, runs, names, members
end

-- Makes the postponed messages available whose time has come: in their session, or in the returned ranges.
local function wake_postponed()
  local offsets, woken, runs, names, members = woken_messages()
  if #offsets == 0 then
    return
  end
  if #offsets == WOKEN_AT_ONCE then
    ledger.due = now
  end
  if not SESSIONS then
    for _, run in ipairs(runs) do
      give_back(run[1], run[2], run[3])
    end
  else
    for name in pairs(names) do
      local session = session_at(name)
      if session and session.lease == '' and not starts_postponed(session, woken) then
        write('ZADD', FREE, 'NX', next_turn(), name)
      end
    end
    -- Their session may be locked by a client that waits for them.
    ledger.notify = true
  end
  if #members > 0 then
    write('ZREM', POSTPONED, unpack(members))
  end
  write('ZREM', WAKES, unpack(offsets))
end

local function earliest(segments)
  local due = math.huge
  for _, segment in ipairs(segments) do
    due = math.min(due, segment.expiry)
  end
  return due
end

-- Writes segments, sorted, as the whole of a lease. Its expiry is written first, so that no lease is without one. A
-- session's lock has its own expiry, and outlasts its messages.
local function store_lease(id, segments)
  local held = holder(id)
  if #segments == 0 then
    write('HDEL', LEASES, id)
    if not held then
      write('ZREM', EXPIRIES, id)
    end
    return
  end
  if held then
    return write('HSET', LEASES, id, join_session_lease(segments))
  end
  write('ZADD', EXPIRIES, num(earliest(segments)), id)
  write('HSET', LEASES, id, join_lease(segments))
end

-- Writes a new lease of a receiver (by), if it said who it is. If the id exists already, a request failed half-way and
-- is done again: messages that the lease held beyond the new segments stay in it, so that they expire instead of
-- vanishing.
local function write_lease(id, segments, by)
  local starts, merged = {}, {}
  for index, segment in ipairs(segments) do
    starts[segment.first], merged[index] = true, segment
    if by then
      segment.since, segment.by = now, by
    end
  end
  for _, segment in ipairs(leased(id)) do
    if not starts[segment.first] then
      merged[#merged + 1] = segment
    end
  end
  table.sort(merged, function(a, b) return a.first < b.first end)
  store_lease(id, merged)
end

-- Adds messages to a lease that locks a session, in the words in which a session's chunk has them.
local function lease_text(id, text)
  local before = redis.call('HGET', LEASES, id) or ''
  if before == '' or last_of(before) < tonumber(string.match(text, '^%d+')) then
    return write('HSET', LEASES, id, before == '' and text or before .. ',' .. text)
  end
  write_lease(id, split_session_lease(text, holder(id)))
end

-- The rest of a lease's text without messages, word by word as it has them, and how many messages these were; nothing
-- if the lease has them in other words.
local function without(text, words)
  local all, parts, at, taken = ',' .. text .. ',', {}, 1, 0
  for word in string.gmatch(words, '[^,]+') do
    local from = string.find(all, ',' .. string.gsub(word, '%-', '%%-') .. '[,*d]', at)
    if not from then
      return
    end
    local first, last = string.match(word, '^(%d+)%-(%d+)$')
    taken = taken + (first and tonumber(last) - tonumber(first) + 1 or 1)
    parts[#parts + 1] = string.sub(all, at, from - 1)
    at = string.find(all, ',', from + 1, true)
  end
  parts[#parts + 1] = string.sub(all, at, -2)
  return string.sub(table.concat(parts), 2), taken
end

-- Ends a lease that locks a session: messages that were granted and not settled go back, `counted` deliveries added.
local function dissolve(id, held, counted)
  for _, segment in ipairs(leased(id)) do
    each_open(segment, function(first, last) put_back(segment, first, last, segment.count + counted) end)
  end
  arrive()
  write('HDEL', LEASES, id)
  local session = session_at(held.name)
  if session and session.lease == id then
    free_session(session)
  end
  write('HDEL', HOLDERS, id)
  write('ZREM', EXPIRIES, id)
end

-- Whether messages of a lease are part of a transaction whose outcome is not known yet. If the lease locks a session,
-- no other client gets the session until then, or these messages could come back behind later ones.
local function in_doubt(id)
  if redis.call('HLEN', MOVING) > 0 then
    for _, state in ipairs(redis.call('HVALS', MOVING)) do
      local _, lease = string.match(state, '^%d+|' .. PREPARED_FORM)
      if lease == id then
        return true
      end
    end
  end
  return false
end

-- Ends a lease that locks a session, and has expired or was given up: now, or once all is known of its messages.
local function expire_holder(id, held, counted)
  if not in_doubt(id) then
    return dissolve(id, held, counted)
  end
  local again = num(now + 1000)
  write_holder(id, held, math.min(held.expiry, now))
  write('ZADD', EXPIRIES, again, id)
end

-- How often a segment's messages were delivered once their lock expires.
local function delivered(segment)
  return segment.count + (segment.kind == 's' and 0 or 1)
end

-- Returns messages whose locks have expired, each delivery counted; messages that were renewed stay. Postponed ones
-- whose time has come are available again.
local function expire_leases()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', EXPIRIES, '-inf', num(now), 'LIMIT', 0, 64)) do
    -- Upkeep looks whether messages were delivered too often.
    ledger.due = now
    local left, segments, held = {}, leased(id)
    if held then
      expire_holder(id, held, 1)
    else
      for _, segment in ipairs(segments) do
        if segment.expiry > now then
          left[#left + 1] = segment
        else
          each_open(segment, function(first, last) put_back(segment, first, last, delivered(segment)) end)
        end
      end
      store_lease(id, left)
    end
  end
  wake_postponed()
end
