-- Leases as text, and ranges that go back to be granted again.
--
-- Defines split_lease, join_lease, each_open, give_back, write_lease, expire_leases.

local function split_lease(text)
  local segments = {}
  for first, last, count, bits in string.gmatch(text, '|(%d+):(%d+):(%d+):([01]*)') do
    segments[#segments + 1] = { first = tonumber(first), last = tonumber(last), count = tonumber(count), bits = bits }
  end
  return tonumber(string.match(text, '^%d+')), segments
end

local function join_lease(expiry, segments)
  local parts = { num(expiry) }
  for _, segment in ipairs(segments) do
    parts[#parts + 1] = num(segment.first) .. ':' .. num(segment.last) .. ':' .. num(segment.count)
      .. ':' .. segment.bits
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

-- A range at or beyond the cursor was leased by a request that died before it moved the cursor; what lies before the
-- range was leased with it or holds no messages. Moving the cursor now keeps it from being granted again as new.
local function give_back(first, last, count)
  write('ZADD', RETURNED, num(first), num(first) .. ':' .. num(last) .. ':' .. num(count))
  ledger.cursor = math.max(ledger.cursor, last + 1)
  ledger.rings = true
end

-- Writes a new lease. An id that exists already is a request that failed half-way and is done again: what the lease
-- held beyond the new segments stays in it, so that it expires instead of vanishing.
local function write_lease(id, expiry, segments)
  if write('HSETNX', LEASES, id, join_lease(expiry, segments)) == 0 then
    local starts = {}
    for _, segment in ipairs(segments) do
      starts[segment.first] = true
    end
    local merged = {}
    local _, present = split_lease(redis.call('HGET', LEASES, id))
    for _, segment in ipairs(present) do
      if not starts[segment.first] then
        merged[#merged + 1] = segment
      end
    end
    for _, segment in ipairs(segments) do
      merged[#merged + 1] = segment
    end
    table.sort(merged, function(a, b) return a.first < b.first end)
    write('HSET', LEASES, id, join_lease(expiry, merged))
  end
  write('ZADD', EXPIRIES, num(expiry), id)
end

-- Gives expired leases back as ranges, each delivery counted.
local function expire_leases()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', EXPIRIES, '-inf', num(now), 'LIMIT', 0, 64)) do
    local text = redis.call('HGET', LEASES, id)
    if text then
      local _, segments = split_lease(text)
      for _, segment in ipairs(segments) do
        each_open(segment, function(first, last) give_back(first, last, segment.count + 1) end)
      end
      write('HDEL', LEASES, id)
    end
    write('ZREM', EXPIRIES, id)
  end
end
