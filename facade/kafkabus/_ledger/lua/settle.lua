-- Settling messages of a lease: complete, abandon, release, defer; and renewing their locks.
--
-- Defines take (used by every operation that takes messages out of a lease) and
--   complete {lease, ranges}           the messages are done with
--   abandon  {lease, ranges}           they go back to be granted again, this delivery counted
--   release  {lease, ranges}           they go back uncounted: no application has seen them
--   defer    {lease, ranges, limit}    they are set aside, granted by offset only. If more than limit would be set
--                                      aside, nothing changes. Reply also: {"full": limit} in that case
--   renew    {lease, ranges, lock_ms}  they are locked for so long from now on; a session's count as lost, as its lock
--                                      is theirs. Reply also: {"expiry": ms}
-- ranges is "<first>[-<last>],…" or a list of [first, last], ascending and disjoint; release without ranges gives back
-- all that is left.
-- Reply of each: {"lost": [[first, last], …]}, ranges that the lease did not hold any more: nothing was changed for
-- those.

local function read_ranges(ranges)
  return type(ranges) == 'string' and split_chunk(ranges) or ranges
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
-- Returns how many messages were taken and the ranges that were not there.
local function take(id, ranges, visit)
  local taken, lost, left = select_held(id, ranges, visit)
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
    return { lost = {} }
  end
  local taken, lost = take(op.lease, op.ranges, function() end)
  ledger.in_flight = ledger.in_flight - taken
  return { lost = lost }
end

operations.abandon = function(op)
  local _, lost = take(op.lease, op.ranges, function(first, last, segment)
    put_back(segment, first, last, segment.count + 1)
  end)
  return { lost = lost }
end

operations.release = function(op)
  local _, lost = take(op.lease, op.ranges or all_open(op.lease), function(first, last, segment)
    put_back(segment, first, last, segment.count)
  end)
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
  local _, lost = take(op.lease, op.ranges, function(first, last, segment) set_aside(first, last, segment.count) end)
  return { lost = lost }
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
      and previous.kind == segment.kind then
      previous.last = last
    else
      renewed[#renewed + 1] = {
        first = first, last = last, count = segment.count, kind = segment.kind, expiry = until_ms, bits = '',
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
