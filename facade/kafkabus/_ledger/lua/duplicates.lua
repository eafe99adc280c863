-- Duplicate detection: of the records with one id, the first in the log is the message. Those that follow it within the
-- window are void, no matter which client stored them and when they were read.
--
-- The window is four hashes that are filled in turn, each for a third of the window: then nothing in the oldest counts
-- any more, and it is dropped at once.
--
-- Defines
--   detect_duplicates {from, upto, ids, epochs, window, start}  the caller has seen every record from `from`
--         to before `upto`: ids is [[offset, id, when it was stored, ms, source], …] of those that have one, ascending;
--         source, which may be absent, names the message of which the record is a copy: copies of one message are no
--         duplicates of each other, because the client that moves it voids all but one. epochs is
--         [[offset, leader epoch], …] of records before `upto`, ascending, the first with each; window is in ms; start,
--         which may be absent, says that records before it do not count any more: they are too old, or the log does not
--         have them
--         Reply: {"dedup_upto": offset}  up to where it is known which records are messages
--                with "ahead": true if from is beyond that: nothing was judged, go on from there
--                with "log_truncated": the latest leader epoch of the scanned records, if a record at a scanned offset
--                has a later one: the log was truncated, and holds others since; nothing was scanned
--   All operations that grant new messages refuse records that were not scanned, and refuse all if the log was
--   truncated.

-- The latest known entry of each id, out of "<offset>:<when, ms>:<source>".
local function known_ids(ids)
  local known = {}
  for turn = 1, #IDS do
    for first = 1, #ids, 500 do
      local part = {}
      for index = first, math.min(#ids, first + 499) do
        part[#part + 1] = ids[index][2]
      end
      for index, text in ipairs(redis.call('HMGET', IDS[turn], unpack(part))) do
        local offset, at, source = string.match(text or '', '^' .. IDENTIFIER_FORM .. '$')
        local before = known[part[index]]
        if offset and not (before and before.offset > tonumber(offset)) then
          known[part[index]] = { offset = tonumber(offset), at = tonumber(at), source = source }
        end
      end
    end
  end
  return known
end

-- The hashes of the window: which one is being filled, and since when each was filled.
local function read_ring()
  local text = redis.call('HGET', META, 'ring') or '1:0:0:0:0'
  local ring = { since = {} }
  for number in string.gmatch(text, '%d+') do
    if ring.filled then
      ring.since[#ring.since + 1] = tonumber(number)
    else
      ring.filled = tonumber(number)
    end
  end
  return ring
end

-- The hash for records stored at a moment. Drops the oldest hash once nothing in it counts.
local function hash_for(ring, at, window)
  if ring.since[ring.filled] == 0 then
    ring.since[ring.filled] = at
  elseif at >= ring.since[ring.filled] + window / 3 then
    local oldest = ring.filled % #IDS + 1
    -- The oldest was filled until the next one was.
    local ended = ring.since[oldest % #IDS + 1]
    if ring.since[oldest] == 0 or ended <= at - window then
      write('UNLINK', IDS[oldest])
      ring.filled, ring.since[oldest] = oldest, at
    end
  end
  return IDS[ring.filled]
end

operations.detect_duplicates = function(op)
  if op.start then
    write('ZREMRANGEBYSCORE', DUPLICATES, '-inf', '(' .. num(op.start))
    ledger.dedup_upto = math.max(ledger.dedup_upto, op.start)
  end
  local judged_before, latest_epoch = math.max(ledger.dedup_upto, ledger.dedup_checkpoint), ledger.dedup_epoch
  for _, one in ipairs(op.epochs) do
    -- Epochs never fall along a log, so each record that was judged has the latest epoch or an earlier one.
    if one[1] < judged_before and ledger.dedup_epoch >= 0 and one[2] > ledger.dedup_epoch then
      ledger.log_truncated = true
      return { dedup_upto = num(ledger.dedup_upto), log_truncated = num(ledger.dedup_epoch) }
    end
    latest_epoch = math.max(latest_epoch, one[2])
  end
  if op.from > ledger.dedup_upto then
    return { dedup_upto = num(ledger.dedup_upto), ahead = true }
  end
  local ids = {}
  for _, one in ipairs(op.ids) do
    if one[1] >= ledger.dedup_upto and one[1] < op.upto then
      ids[#ids + 1] = one
    end
  end
  local known, ring, latest = known_ids(ids), read_ring(), tonumber(redis.call('HGET', META, 'latest') or 0)
  for _, one in ipairs(ids) do
    local offset, id, source = one[1], one[2], one[4] or ''
    -- The time of a broker's records may go back when another broker takes over.
    latest = math.max(latest, one[3])
    local before, at = known[id], one[3]
    local recent = before and math.abs(at - before.at) < op.window
    local copied = recent and source ~= '' and source == before.source
    local skip = recent and not copied
    if offset < ledger.dedup_checkpoint or (before and before.offset >= offset) then
      -- Judged before, by a script that died or according to a checkpoint.
      skip = redis.call('ZSCORE', DUPLICATES, num(offset))
    end
    if skip then
      write('ZADD', DUPLICATES, num(offset), num(offset))
      if call_off(offset) then
        ledger.in_flight = ledger.in_flight - 1
      end
      if offset >= ledger.cursor then
        write('ZADD', SKIPPED, num(offset), num(offset))
        ledger.skipped = 1
      end
    elseif not (before and before.offset > offset) then
      -- Any copy of one message may be the one that stays; its time is the first copy's.
      at = copied and before.at or at
      known[id] = { offset = offset, at = at, source = source }
      write('HSET', hash_for(ring, latest, op.window), id, join_identifier(offset, at, source))
    end
  end
  local text = num(ring.filled)
  for _, at in ipairs(ring.since) do
    text = text .. ':' .. num(at)
  end
  ledger.dedup_upto = math.max(ledger.dedup_upto, op.upto)
  write(
    'HSET', META, 'ring', text, 'latest', num(latest), 'dedup_upto', num(ledger.dedup_upto),
    'skipped', num(ledger.skipped), 'dedup_epoch', num(latest_epoch)
  )
  ledger.dedup_epoch = latest_epoch
  return { dedup_upto = num(ledger.dedup_upto) }
end
