-- Counts the entities of a namespace, and finds those whose names begin with a text.
--
-- KEYS  1 descriptions hash: see describe.lua
--       2 index of the descriptions: see description_index.lua
-- ARGV  1 beginning of the names, in lower case; empty if none are wanted
-- Reply {"$upto" or "", the namespace's own description or "", number of queues and topics, number of those that are
--       partitioned, then what the hash holds of each entity that was found, by name}
-- Effect: rebuilds the index if it is not of the hash as it is now

if not index_read() then
  index_anew()
end
local upto = redis.call('HGET', KEYS[1], '$upto')
local own = redis.call('HGET', KEYS[1], '$namespace')
local reply = { upto or '', own or '', entities, partitioned }
if ARGV[1] ~= '' then
  local beginning = 'n ' .. ARGV[1]
  local found = redis.call('ZRANGE', KEYS[2], '[' .. beginning, '(' .. beginning .. '\255', 'BYLEX')
  for first = 1, #found, AT_ONCE do
    local names = {}
    for at = first, math.min(first + AT_ONCE - 1, #found) do
      names[#names + 1] = string.sub(found[at], 3)
    end
    for _, kept in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do
      reply[#reply + 1] = kept
    end
  end
end
return reply
