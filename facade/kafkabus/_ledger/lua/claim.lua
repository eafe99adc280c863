-- Claiming messages: one way in which a client comes to hold them (deferred.lua has the other, for deferred ones).
--
-- Defines
--   claim {lease, want, lock_ms, from, upto, runs, epoch, ahead, limit, exclusive, epoch_to, settle_on_claim, rules}
--     lease    id made up by the client, 16 hex digits
--     want     how many messages at the most
--     lock_ms  how long they are locked
--     from     the caller has seen every record from this offset (absent: it has read nothing)
--     upto     … to before this one; runs: [[first, last], …], the messages among them, ascending; the rest are holes
--     epoch    leader epoch of all messages of the runs, or of the log if it is claimed ahead; absent if they have
--              several
--     ahead    in place of from, upto and runs: the caller has read nothing, and this is the committed end of the log,
--              or lies before it. As many offsets as are wanted are leased unseen below it, even those without a
--              message: the caller reads them then, and completes the ones that hold none
--     limit    how many messages may be granted and neither settled nor deferred. Beyond it no message is granted for
--              the first time; those granted before are granted again all the same, so that they can be settled
--     exclusive  true: nothing is granted while any lease, or a transfer whose copy is not refused, is under way (the
--              reply is limited then), and no new message while any message waits to be granted again: so a client
--              that moves messages on keeps their order
--     epoch_to nothing before this offset, message or not, is of a later epoch; absent: that is known of messages alone
--     settle_on_claim  true: new messages are settled by this claim (receive and delete); those granted again
--              are leased all the same, because their records are still to be read
--     rules    version of the subscription's rules by which the runs were chosen; absent if there are none
--   Reply: {"again": [[first, last, count], …]    leased, granted before
--           "fresh": [[first, last], …]           never granted before: leased, or settled with settle_on_claim
--           "leased": true                        if they were leased in spite of settle_on_claim, because
--                                                 scheduled or changed ones may be among them
--           "cursor": offset                      of the ledger, afterwards
--           "epoch_mismatch": true                if nothing was leased unseen, because another leader took over
--                                                 since: read on from the cursor, as Kafka checks it then
--           "ahead": true                         if from is beyond the cursor: nothing may be jumped over, read on
--                                                 from the cursor
--           "not_deduplicated": true              if duplicates are detected, and are not known up to upto
--           "stale_rules": true                   if the caller goes by rules that were changed since: no message is
--                                                 granted for the first time, and the caller may misjudge those that
--                                                 are granted again
--           "limited": true                       if the limit kept anything from being granted
--           "expiry": ms                          of the lease
--           "redeliverable": count                of ranges that still wait to be granted again
--           "due": ms                             when the next lease expires, or the time of a postponed message comes
--           "overdue": true                       if some scheduled messages were not activated in time
--           "free": true                          if sessions wait that no client holds
--           "moves": 1                            if a transfer wants attention (adopt_transfers), else 0}

-- The runs without void offsets, and without offsets below the cursor.
local function claimable(runs, upto)
  if ledger.skipped == 0 and (#runs == 0 or runs[1][1] >= ledger.cursor) then
    return runs
  end
  local skipped = {}
  if ledger.skipped > 0 then
    write('ZREMRANGEBYSCORE', SKIPPED, '-inf', '(' .. num(ledger.cursor))
    for _, offset in ipairs(redis.call('ZRANGEBYSCORE', SKIPPED, num(ledger.cursor), '(' .. num(upto))) do
      skipped[#skipped + 1] = tonumber(offset)
    end
    ledger.skipped = math.min(1, redis.call('ZCARD', SKIPPED))
  end
  local open, index = {}, 1
  for _, run in ipairs(runs) do
    local first, last = math.max(run[1], ledger.cursor), run[2]
    while skipped[index] and skipped[index] <= last do
      if skipped[index] >= first then
        if skipped[index] > first then
          open[#open + 1] = { first, skipped[index] - 1 }
        end
        first = skipped[index] + 1
      end
      index = index + 1
    end
    if first <= last then
      open[#open + 1] = { first, last }
    end
  end
  return open
end

-- Returned ranges to grant, oldest first, split at the wanted number; the members that then leave the returned ranges;
-- and how many messages are granted.
local function grant_returned(want)
  local segments, leaving, granted = {}, {}, 0
  if want > 0 then
    for _, member in ipairs(redis.call('ZRANGE', REDELIVERABLE, 0, math.min(want, 256) - 1)) do
      if granted >= want then
        break
      end
      local first, last, count = split_returned(member)
      local stop = math.min(last, first + want - granted - 1)
      segments[#segments + 1] = { first = first, last = stop, count = count }
      leaving[#leaving + 1] = { member = member, rest = stop < last and { stop + 1, last, count } }
      granted = granted + stop - first + 1
    end
  end
  return segments, leaving, granted
end

-- Ranges never granted before, how many messages they hold, and the cursor behind them.
local function grant_fresh(op, want)
  local fresh, granted = {}, 0
  for _, run in ipairs(claimable(op.runs, op.upto)) do
    if granted >= want then
      return fresh, granted, run[1]
    end
    local stop = math.min(run[2], run[1] + want - granted - 1)
    fresh[#fresh + 1] = { first = run[1], last = stop, count = 0 }
    granted = granted + stop - run[1] + 1
    if stop < run[2] then
      return fresh, granted, stop + 1
    end
  end
  return fresh, granted, math.max(ledger.cursor, op.upto)
end

-- Whether duplicates are detected, and those below an offset are not known, or not known any more.
local function not_deduplicated(upto)
  return DUPLICATES and (upto > ledger.dedup_upto or ledger.log_truncated)
end

-- Whether a caller chose what it has seen by rules of a subscription that were changed since.
local function has_stale_rules(op)
  return (op.rules or 0) < ledger.rules
end

-- How many postponed messages do not count as in flight.
local MOST_POSTPONED = 100000

-- How many of the wanted messages the limit leaves room for.
local function within(limit, wanted)
  local left = limit - ledger.in_flight
  if left < wanted then
    -- Deferred messages have a separate quota, and scheduled ones are not in flight.
    local apart = redis.call('ZCARD', DEFERRED) + redis.call('ZCARD', SCHEDULED)
    left = math.max(0, left + apart + math.min(MOST_POSTPONED, redis.call('ZCARD', POSTPONED)))
  end
  return math.min(wanted, left)
end

-- Turns a claim ahead into a claim of offsets that were seen, up to as many as are wanted, if the log's leader epoch is
-- still the latest of the records that the cursor passed. After another leader took over, the log may have been
-- truncated.
local function see_ahead(op, wanted, reply)
  if ledger.leader ~= '' and (not op.epoch or num(op.epoch) ~= ledger.leader) then
    reply.epoch_mismatch = true
  elseif op.ahead > ledger.cursor and wanted > 0 and not DUPLICATES and not has_stale_rules(op) then
    op.from, op.upto = ledger.cursor, math.min(op.ahead, ledger.cursor + wanted)
    op.runs = { { op.from, op.upto - 1 } }
  end
end

-- Whether the runs hold an offset.
local function was_seen(runs, offset)
  for _, run in ipairs(runs) do
    if run[1] <= offset and offset <= run[2] then
      return true
    end
  end
  return false
end

-- Moves the cursor behind what the caller has seen; its last record's leader epoch is known if all have the same.
local function pass(op, cursor)
  if cursor ~= ledger.cursor and op.epoch then
    ledger.leader = num(op.epoch)
    if op.ahead or cursor <= (op.epoch_to or 0) or was_seen(op.runs or {}, cursor - 1) then
      ledger.epoch, ledger.epoch_at = num(op.epoch), cursor
    end
  end
  ledger.cursor = cursor
end

-- For how long, in ms, scheduled messages that are due may wait to be activated before they are overdue.
local OVERDUE = 2000

-- Adds the present state of the ledger to a reply.
local function with_state(reply)
  reply.cursor = num(ledger.cursor)
  -- In a ledger with sessions, the returned ranges are one client's at a time.
  reply.redeliverable = filer_lease() and 0 or redis.call('ZCARD', REDELIVERABLE)
  local due = math.huge
  for _, key in ipairs({ EXPIRIES, WAKES }) do
    due = math.min(due, tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or due))
  end
  reply.due = due < math.huge and num(due) or nil
  if ledger.schedules then
    reply.overdue = redis.call('ZRANGEBYSCORE', DUE, '-inf', num(now - OVERDUE), 'LIMIT', 0, 1)[1] and true or nil
  end
  reply.free = SESSIONS and redis.call('ZCARD', FREE) > 0 or nil
  reply.moves = #redis.call('ZRANGEBYSCORE', MOVES, '-inf', num(now), 'LIMIT', 0, 1)
  return reply
end

operations.claim = function(op)
  expire_leases()
  local waits = op.exclusive and (redis.call('HLEN', LEASES) > 0 or redis.call('HLEN', MOVING) > #refused_copies())
  if waits then
    op.want = 0
  elseif op.exclusive and redis.call('ZCARD', REDELIVERABLE) > 0 then
    op.from, op.ahead = nil, nil
  end
  local segments, leaving, granted = grant_returned(filer_lease() and 0 or op.want)
  local again, fresh, cursor, reply = #segments, {}, ledger.cursor, {}
  if has_stale_rules(op) and (again > 0 or op.from) then
    reply.stale_rules = true
  end
  if op.settle_on_claim and (ledger.schedules or ledger.properties > 0) then
    op.settle_on_claim, reply.leased = false, true
  end
  if op.ahead then
    see_ahead(op, op.want - granted, reply)
  end
  if op.from then
    if op.from > ledger.cursor then
      reply.ahead = true
    elseif not reply.stale_rules and not_deduplicated(op.upto) then
      reply.not_deduplicated = true
    elseif not reply.stale_rules then
      local count
      local wanted = op.want - granted
      local most = op.settle_on_claim and wanted or within(op.limit, wanted)
      fresh, count, cursor = grant_fresh(op, most)
      reply.limited = most < wanted and cursor < op.upto or nil
      if not op.settle_on_claim then
        for _, segment in ipairs(fresh) do
          segments[#segments + 1] = segment
        end
        ledger.in_flight = ledger.in_flight + count
      end
    end
  end

  local expiry = now + op.lock_ms
  if #segments > 0 then
    for _, segment in ipairs(segments) do
      segment.kind, segment.expiry, segment.bits = (SESSIONS or op.exclusive) and 's' or 'n', expiry, ''
    end
    if SESSIONS then
      write('HSET', META, 'filer_lease', op.lease)
    end
    write_lease(op.lease, segments, op.by)
  end
  for _, entry in ipairs(leaving) do
    if entry.rest then
      write('ZADD', REDELIVERABLE, num(entry.rest[1]),
        num(entry.rest[1]) .. ':' .. num(entry.rest[2]) .. ':' .. num(entry.rest[3]))
    end
    write('ZREM', REDELIVERABLE, entry.member)
  end
  pass(op, cursor)

  reply.again, reply.fresh = {}, {}
  for index = 1, again do
    local segment = segments[index]
    reply.again[index] = { num(segment.first), num(segment.last), num(segment.count) }
  end
  for index, segment in ipairs(fresh) do
    reply.fresh[index] = { num(segment.first), num(segment.last) }
  end
  reply.expiry = num(expiry)
  with_state(reply)
  if waits then
    reply.limited, reply.redeliverable = true, 0
  end
  return reply
end
