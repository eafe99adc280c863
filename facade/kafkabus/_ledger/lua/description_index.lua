-- The index of the descriptions of entities, which counts and lists them without a look at each: a sorted set, in which
-- every score is 0, of
--   "n <name>"  each entity
--   "$ <life> <upto> <fields> <entities> <partitioned>"  the state of the descriptions' hash that it is made of, and the
--               numbers of queues and topics, and of those that are partitioned; of another state it counts for nothing
--
-- KEYS  1 descriptions hash: see describe.lua
--       2 index
-- ARGV  those of the program that begins with this file
-- Reply that of the program
-- Effect: clients of versions without the index change the hash alone; then the next client rebuilds the index.

local AT_ONCE = 1000
-- The numbers of queues and topics, and of those that are partitioned; nil if the index is of another state.
local entities, partitioned

local function index_state()
  local known = redis.call('HMGET', KEYS[1], '$life', '$upto')
  return '$ ' .. (known[1] or '') .. ' ' .. (known[2] or '') .. ' ' .. redis.call('HLEN', KEYS[1]) .. ' '
end

local function index_read()
  local state = index_state()
  local mark = redis.call('ZRANGE', KEYS[2], '[' .. state, '(' .. state .. '~', 'BYLEX')[1]
  entities, partitioned = string.match(mark or '', '(%d+) (%d+)$')
  entities, partitioned = tonumber(entities), tonumber(partitioned)
  return entities ~= nil
end

-- Counts an entity as it is kept, or takes it from the numbers if `by` is -1.
local function index_count(name, kept, by)
  if not string.find(name, '/subscriptions/', 1, true) then
    entities = entities + by
    -- Inside a text of the JSON, quotes have backslashes.
    if string.find(kept, '"enable_partitioning":true', 1, true) then
      partitioned = partitioned + by
    end
  end
end

-- Notes that an entity is kept otherwise than before; each text is nil or false if there is none.
local function index_change(name, before, kept)
  if string.sub(name, 1, 1) == '$' then
    return
  end
  if before then
    index_count(name, before, -1)
  end
  if kept then
    index_count(name, kept, 1)
    redis.call('ZADD', KEYS[2], 0, 'n ' .. name)
  else
    redis.call('ZREM', KEYS[2], 'n ' .. name)
  end
end

-- Marks the index as made of the hash as it is now.
local function index_seal()
  for _, mark in ipairs(redis.call('ZRANGE', KEYS[2], '[$', '($~', 'BYLEX')) do
    redis.call('ZREM', KEYS[2], mark)
  end
  redis.call('ZADD', KEYS[2], 0, index_state() .. entities .. ' ' .. partitioned)
end

local function index_anew()
  redis.call('DEL', KEYS[2])
  entities, partitioned = 0, 0
  local all, members = redis.call('HGETALL', KEYS[1]), {}
  for at = 1, #all, 2 do
    local name = all[at]
    if string.sub(name, 1, 1) ~= '$' then
      index_count(name, all[at + 1], 1)
      members[#members + 1] = 0
      members[#members + 1] = 'n ' .. name
    end
    if #members >= AT_ONCE then
      redis.call('ZADD', KEYS[2], unpack(members))
      members = {}
    end
  end
  if #members > 0 then
    redis.call('ZADD', KEYS[2], unpack(members))
  end
  index_seal()
end
