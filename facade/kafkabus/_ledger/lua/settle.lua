-- Settling messages of a lease: complete, abandon, release, defer; and renewing their locks.
--
-- Defines take (used by every operation that takes messages out of a lease) and
--   complete {lease, ranges}           the messages are done with
--   abandon  {lease, ranges, change, delay}  they go back to be granted again, this delivery counted: after so many ms,
--                                      0 for at once; by default as the retry policy says
--   release  {lease, ranges, delay}    they go back uncounted: no application has seen them; or after so many ms
--   defer    {lease, ranges, limit, change}  they are set aside, granted by offset only. If more than limit would be
--                                      set aside, nothing changes. Reply also: {"full": limit} in that case
--   renew    {lease, ranges, lock_ms}  they are locked for so long from now on; a session's count as lost, as its lock
--                                      is theirs. Reply also: {"expiry": ms}
-- ranges is "<first>[-<last>],…" or a list of [first, last], ascending and disjoint; release without ranges gives back
-- all that is left. change, which may be absent, is {"<name>": "<JSON text>"}: application properties that these
-- messages have from now on, beside their others. Reply also {"too_much": bytes allowed} if nothing was done, because
-- there would be more.
-- Reply of each: {"lost": [[first, last], …]}, ranges that the lease did not hold any more: nothing was changed for
-- those.

local function read_ranges(ranges)
  return type(ranges) == 'string' and split_chunk(ranges) or ranges
end

-- How many bytes the changed properties of all messages of a ledger may have, and of one message, which are in one
-- record of a checkpoint.
local MOST_PROPERTIES, LARGEST_PROPERTIES = 16 * 1024 * 1024, 1500000

-- The changed properties of a message once a change is made, as text, and as they are now, if it has any.
local function text_with(change, offset)
  local before = redis.call('HGET', PROPERTIES, num(offset))
  local merged = before and cjson.decode(before) or {}
  for name, value in pairs(change) do
    merged[name] = value
  end
  return cjson.encode(merged), before
end

-- The texts of changed application properties, by field, once a change is made of messages; with mark, it is that of
-- a transaction that is not over. Nothing, and the limit, if that is too much.
local function changed_properties(change, ranges, mark)
  local texts, growth = {}, 0
  for _, range in ipairs(change and read_ranges(ranges) or {}) do
    for offset = range[1], range[2] do
      local text, before = text_with(change, offset)
      if #text > LARGEST_PROPERTIES then
        return nil, LARGEST_PROPERTIES
      end
      -- An earlier transaction, which is over, left nothing that matters.
      texts[(mark or '') .. num(offset)] = mark and cjson.encode(change) or text
      growth = growth + #text - (mark and 0 or #(before or ''))
      if ledger.properties + growth > MOST_PROPERTIES then
        return nil, MOST_PROPERTIES
      end
    end
  end
  return texts
end

-- Keeps changed properties of messages of a run, before the run gets its new home.
local function keep_properties(texts, first, last, mark)
  for offset = first, next(texts) and last or -1 do
    local field = (mark or '') .. num(offset)
    if texts[field] then
      local before = redis.call('HGET', PROPERTIES, field) or ''
      -- First, so that all that is kept is known to be.
      ledger.properties = ledger.properties + #texts[field]
      write('HSET', META, 'properties', num(ledger.properties))
      write('HSET', PROPERTIES, field, texts[field])
      if before ~= '' then
        ledger.properties = ledger.properties - #before
        write('HSET', META, 'properties', num(ledger.properties))
      end
    end
  end
end

-- Forgets changed properties.
local function forget_property(field)
  local text = redis.call('HGET', PROPERTIES, field)
  if text then
    write('HDEL', PROPERTIES, field)
    -- More than is kept may be counted, and never nothing while any is.
    ledger.properties = math.max(1, ledger.properties - #text)
    write('HSET', META, 'properties', num(ledger.properties))
  end
end

-- Forgets the changed properties of messages that are settled.
local function forget_properties(ranges)
  for _, range in ipairs(ledger.properties > 0 and ranges or {}) do
    for offset = range[1], range[2] do
      forget_property(num(offset))
    end
  end
end

-- Turns on the bits of ranges in a lease's segments; visit(first, last, segment) is called for each run that was open.
-- Returns how many messages these were, the ranges that were not there, and the segments with open bits left.
local function select_held(id, ranges, visit)
  ranges = read_ranges(ranges)
  local segments = leased(id)
  local lost, taken, index = {}, 0, 1
  local function lose(first, last)
    lost[#lost + 1] = { num(first), num(last) }
  end
  for _, range in ipairs(ranges) do
    local at = range[1]
    while at <= range[2] do
      while segments[index] and segments[index].last < at do
        index = index + 1
      end
      local segment = segments[index]
      if not segment or segment.first > range[2] then
        lose(at, range[2])
        break
      end
      if segment.first > at then
        lose(at, segment.first - 1)
        at = segment.first
      end
      local stop = math.min(range[2], segment.last)
      if segment.expiry <= now then
        lose(at, stop)
      else
        local bits = segment.bits
        if bits == '' then
          bits = string.rep('0', segment.last - segment.first + 1)
        end
        local from, to = at - segment.first + 1, stop - segment.first + 1
        local position = from
        while position <= to do
          local bit_at = string.sub(bits, position, position)
          local run_end = math.min(to, (string.find(bits, bit_at == '0' and '1' or '0', position, true) or to + 1) - 1)
          local first, last = segment.first + position - 1, segment.first + run_end - 1
          if bit_at == '0' then
            visit(first, last, segment)
            taken = taken + last - first + 1
          else
            lose(first, last)
          end
          position = run_end + 1
        end
        segment.bits = string.sub(bits, 1, from - 1) .. string.rep('1', to - from + 1) .. string.sub(bits, to + 1)
      end
      at = stop + 1
    end
  end
  local left = {}
  for _, segment in ipairs(segments) do
    if segment.bits == '' or string.find(segment.bits, '0', 1, true) then
      left[#left + 1] = segment
    end
  end
  return taken, lost, left
end

-- Takes ranges out of a lease; visit(first, last, segment) writes the new home of each run before the run leaves.
-- Messages that were leased to be filed may be postponed, and stay so with `unseen`: they go back to where they were.
-- Returns how many messages were taken and the ranges that were not there.
local function take(id, ranges, visit, unseen)
  local taken, lost, left = select_held(id, ranges, function(first, last, segment)
    if SESSIONS and not unseen then
      forget_postponed(first, last)
    end
    visit(first, last, segment)
  end)
  if taken > 0 then
    arrive()
    store_lease(id, left)
  end
  return taken, lost
end

-- All ranges that are left in a lease.
local function all_open(id)
  local ranges = {}
  for _, segment in ipairs(leased(id)) do
    each_open(segment, function(first, last) ranges[#ranges + 1] = { first, last } end)
  end
  return ranges
end

-- Completes messages of a session without taking its lease apart, if it has them in the same words. Returns how many
-- these were, nothing if it has not.
local function complete_words(op)
  local text = redis.call('HGET', LEASES, op.lease)
  if not text or not locked_by(op.lease) then
    return
  end
  local left, taken = ''
  if text == op.ranges then
    taken = count_words(text)
  else
    left, taken = without(text, op.ranges)
  end
  if left == '' then
    write('HDEL', LEASES, op.lease)
  elseif left then
    write('HSET', LEASES, op.lease, left)
  end
  return taken
end

operations.complete = function(op)
  local completed = complete_words(op)
  if completed then
    ledger.in_flight = ledger.in_flight - completed
    forget_properties(ledger.properties > 0 and read_ranges(op.ranges) or {})
    return { lost = {} }
  end
  local runs = {}
  local taken, lost = take(op.lease, op.ranges, function(first, last) runs[#runs + 1] = { first, last } end)
  ledger.in_flight = ledger.in_flight - taken
  forget_properties(runs)
  return { lost = lost }
end

-- Takes messages out of a lease, and keeps the change of their properties; place gives each run its new home. If that
-- is too much, nothing is done. Returns the operation's reply.
local function take_changed(op, place)
  local texts, most = changed_properties(op.change, op.ranges)
  if not texts then
    return { lost = {}, too_much = most }
  end
  local _, lost = take(op.lease, op.ranges, function(first, last, segment)
    keep_properties(texts, first, last)
    place(first, last, segment)
  end)
  return { lost = lost }
end

operations.abandon = function(op)
  local due = op.delay and now + op.delay
  return take_changed(op, function(first, last, segment)
    put_back(segment, first, last, segment.count + 1, due)
  end)
end

operations.release = function(op)
  local due = op.delay and now + op.delay
  local _, lost = take(op.lease, op.ranges or all_open(op.lease), function(first, last, segment)
    put_back(segment, first, last, segment.count, due)
  end, true)
  return { lost = lost }
end

operations.defer = function(op)
  local coming = 0
  for _, range in ipairs(read_ranges(op.ranges)) do
    coming = coming + range[2] - range[1] + 1
  end
  if redis.call('ZCARD', DEFERRED) + coming > op.limit then
    return { lost = {}, full = op.limit }
  end
  return take_changed(op, function(first, last, segment)
    set_aside(first, last, segment.count)
  end)
end

operations.renew = function(op)
  local expiry, renewed = now + op.lock_ms, {}
  if holder(op.lease) then
    local lost = {}
    for index, range in ipairs(read_ranges(op.ranges)) do
      lost[index] = { num(range[1]), num(range[2]) }
    end
    return { lost = lost, expiry = num(expiry) }
  end
  local function keep(first, last, segment, until_ms)
    local previous = renewed[#renewed]
    if previous and previous.last == first - 1 and previous.expiry == until_ms and previous.count == segment.count
      and previous.kind == segment.kind and previous.since == segment.since then
      previous.last = last
    else
      renewed[#renewed + 1] = {
        first = first, last = last, count = segment.count, kind = segment.kind, expiry = until_ms, bits = '',
        since = segment.since, by = segment.by,
      }
    end
  end
  local taken, lost, segments = select_held(op.lease, op.ranges, function(first, last, segment)
    keep(first, last, segment, expiry)
  end)
  if taken > 0 then
    -- Segments are disjoint: messages renewed out of the middle of one leave its ends behind.
    for _, segment in ipairs(segments) do
      each_open(segment, function(first, last) keep(first, last, segment, segment.expiry) end)
    end
    table.sort(renewed, function(a, b) return a.first < b.first end)
    store_lease(op.lease, renewed)
  end
  return { lost = lost, expiry = num(expiry) }
end
