-- Looking at messages that are not settled, purging them, and reporting log and rules to a ledger.
--
-- Defines
--   mark   {name}                    what the log may hold: has_message_ttl, messages with individual times to live;
--          schedules, scheduled ones; transacts, records of transactions. Reply: {}
--   set_rules_version {version, end}  no message is granted any more that earlier rules than these chose; these
--          count from the end of the log on, or from the cursor if that is beyond
--          Reply: {"from": offset}   from where they count: the first request for a version decides
--   peek   {from, limit, session}    up to limit messages that are not settled, oldest first; beyond the cursor the
--          scheduled ones alone; with session (a name), none that is known to be of another session
--          Reply: {"cursor": offset, "found": [[first, last, kind, count, until], …], "skipped": [offset, …]}
--                 kind is "d" if they are deferred, "t" if they are scheduled, "p" if they are postponed (until this
--                 time, ms), else "n"; other kinds have a time, ms, if a receiver has them locked until then; skipped
--                 are records beyond the cursor that are no messages, or none yet
--   purge  {upto, limit}             messages that wait below upto are done with, postponed ones too, except leased,
--          deferred and scheduled ones. Reply: {"purged": count, "more": true if there may be more returned ranges, or
--          postponed messages, than limit}

operations.mark = function(op)
  if op.name == 'schedules' then
    ledger.schedules = true
  else
    write('HSET', META, op.name, '1')
  end
  return {}
end

operations.set_rules_version = function(op)
  local from = redis.call('HGET', META, 'rules_from')
  -- A rebuilt ledger knows the version, and not from where on it counts.
  if op.version > ledger.rules or not from then
    from = num(math.max(op['end'], ledger.cursor))
    ledger.rules = math.max(ledger.rules, op.version)
    write('HSET', META, 'rules_from', from, 'rules', num(ledger.rules))
  end
  return { from = from }
end

operations.peek = function(op)
  local found = {}
  local function add(first, last, kind, count, locked)
    if last >= op.from and first <= last then
      found[#found + 1] = { math.max(first, op.from), last, kind, count, locked }
    end
  end
  -- Messages of a session are postponed where they wait.
  local function add_waiting(first, last, count)
    local member = SESSIONS and first_postponed(first, last)
    while member do
      local offset = split_postponed(member)
      add(first, offset - 1, 'n', count)
      add(offset, offset, 'p', count)
      first = offset + 1
      member = first_postponed(first, last)
    end
    add(first, last, 'n', count)
  end
  local function add_returned(members)
    for _, member in ipairs(members) do
      add_waiting(split_returned(member))
    end
  end
  add_returned(redis.call('ZREVRANGEBYSCORE', REDELIVERABLE, '(' .. num(op.from), '-inf', 'LIMIT', 0, 1))
  add_returned(redis.call('ZRANGEBYSCORE', REDELIVERABLE, num(op.from), '+inf', 'LIMIT', 0, op.limit))
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', DEFERRED, num(op.from), '+inf', 'LIMIT', 0, op.limit)) do
    local offset, count = split_deferred(member)
    add(offset, offset, 'd', count)
  end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', SCHEDULED, num(op.from), '+inf', 'LIMIT', 0, op.limit)) do
    local offset = split_scheduled(member)
    add(offset, offset, 't', 0)
  end
  if not SESSIONS then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', POSTPONED, num(op.from), '+inf', 'LIMIT', 0, op.limit)) do
      local offset, count = split_postponed(member)
      add(offset, offset, 'p', count)
    end
  end
  for _, id in ipairs(redis.call('HKEYS', LEASES)) do
    local segments, held = leased(id)
    if not (op.session and held) or held.name == op.session then
      for _, segment in ipairs(segments) do
        -- Messages that are being filed in their sessions are in no receiver's hands.
        local locked = (held or not SESSIONS) and segment.expiry or nil
        each_open(segment, function(first, last) add(first, last, segment.kind, segment.count, locked) end)
      end
    end
  end
  if SESSIONS then
    each_chunk(op.session, function(_, text)
      for _, run in ipairs(split_chunk(text)) do
        add_waiting(run[1], run[2], run[3])
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
    local until_ms = run[5]
    if run[3] == 'p' then
      until_ms = redis.call('ZSCORE', WAKES, padded(run[1]))
    end
    ranges[index] = { num(run[1]), num(last), run[3], num(run[4]), until_ms and num(until_ms) or nil }
    room = room - (last - run[1] + 1)
  end
  local skipped = redis.call('ZRANGEBYSCORE', SKIPPED, num(ledger.cursor), '+inf')
  return { cursor = num(ledger.cursor), found = ranges, skipped = skipped }
end

operations.purge = function(op)
  local purged = 0
  if SESSIONS then
    local below = { { 0, op.upto - 1 } }
    each_chunk(nil, function(name, _, field) purged = purged + cut_chunk(name, field, below) end)
  end
  local members = redis.call('ZRANGEBYSCORE', REDELIVERABLE, '-inf', '(' .. num(op.upto), 'LIMIT', 0, op.limit)
  for _, member in ipairs(members) do
    local first, last, count = split_returned(member)
    if last >= op.upto then
      give_back(op.upto, last, count)
      last = op.upto - 1
    end
    write('ZREM', REDELIVERABLE, member)
    forget_postponed(first, last)
    purged = purged + last - first + 1
  end
  local postponed = SESSIONS and {}
    or redis.call('ZRANGEBYSCORE', POSTPONED, '-inf', '(' .. num(op.upto), 'LIMIT', 0, op.limit)
  for _, member in ipairs(postponed) do
    local offset = split_postponed(member)
    forget_postponed(offset, offset)
    purged = purged + 1
  end
  ledger.in_flight = ledger.in_flight - purged
  if op.upto > ledger.cursor then
    purged = purged + op.upto - ledger.cursor
    ledger.cursor = op.upto
  end
  return { purged = num(purged), more = #members == op.limit or #postponed == op.limit }
end
