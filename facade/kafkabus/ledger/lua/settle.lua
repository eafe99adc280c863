-- Settling messages of a lease: complete, abandon, release.
--
-- Defines take (used by every operation that takes messages out of a lease) and
--   complete {lease, ranges}  the messages are done with
--   abandon  {lease, ranges}  they go back to be granted again, this delivery counted
--   release  {lease, ranges}  they go back uncounted: nobody has seen them
-- where ranges is a list of [first, last], ascending and disjoint; release without ranges gives back all that is left.
-- Reply of each: {"lost": [[first, last], …]}, what the lease did not hold any more: nothing was changed for those.

-- Takes ranges out of a lease; visit(first, last, count) writes the new home of each run before the run leaves.
-- Returns how many messages were taken and the ranges that were not there.
local function take(id, ranges, visit)
  local text = redis.call('HGET', LEASES, id)
  local expiry, segments
  if text then
    expiry, segments = split_lease(text)
  end
  local lost = {}
  local function lose(first, last)
    lost[#lost + 1] = { num(first), num(last) }
  end
  if not text or expiry <= now then
    for _, range in ipairs(ranges) do
      lose(range[1], range[2])
    end
    return 0, lost
  end

  local taken, index = 0, 1
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
          visit(first, last, segment.count)
          taken = taken + last - first + 1
        else
          lose(first, last)
        end
        position = run_end + 1
      end
      segment.bits = string.sub(bits, 1, from - 1) .. string.rep('1', to - from + 1) .. string.sub(bits, to + 1)
      at = stop + 1
    end
  end

  if taken > 0 then
    local left = {}
    for _, segment in ipairs(segments) do
      if segment.bits == '' or string.find(segment.bits, '0', 1, true) then
        left[#left + 1] = segment
      end
    end
    if #left > 0 then
      write('HSET', LEASES, id, join_lease(expiry, left))
    else
      write('HDEL', LEASES, id)
      write('ZREM', EXPIRIES, id)
    end
  end
  return taken, lost
end

operations.complete = function(op)
  local taken, lost = take(op.lease, op.ranges, function() end)
  ledger.held = ledger.held - taken
  return { lost = lost }
end

operations.abandon = function(op)
  local _, lost = take(op.lease, op.ranges, function(first, last, count) give_back(first, last, count + 1) end)
  return { lost = lost }
end

operations.release = function(op)
  local ranges = op.ranges
  if not ranges then
    local text = redis.call('HGET', LEASES, op.lease)
    ranges = {}
    if text then
      local _, segments = split_lease(text)
      for _, segment in ipairs(segments) do
        each_open(segment, function(first, last) ranges[#ranges + 1] = { first, last } end)
      end
    end
  end
  local _, lost = take(op.lease, ranges, give_back)
  return { lost = lost }
end
