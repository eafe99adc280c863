-- Reserves room in the namespace for an entity that is to be created, or gives it back.
--
-- KEYS  1 descriptions hash: see describe.lua
--       2 index of the descriptions: see description_index.lua
--       3 sorted set of the creations that are under way, each "<1 if partitioned, else 0> <token> <name>", by the time of
--         its reservation in µs since 1970
-- ARGV  1 name, in lower case
--       2 1 if the entity is to be partitioned, else 0
--       3 token of the creation, without spaces
--       4 for how many seconds reservations count; 0 to give this one back
-- Reply as of find_descriptions.lua, without descriptions; reservations that came before this one count as entities, and
--       an entity of this name does not
-- Effect: of several creations at the limit of a namespace each knows of those before it, so no more pass than there is
-- room for. A reservation that its client does not give back ends by itself.

local own = ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[1]
if ARGV[4] == '0' then
  redis.call('ZREM', KEYS[3], own)
  return {}
end
if not index_read() then
  index_anew()
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now - ARGV[4] * 1000000))
-- No two have one time, also if the clock was set back.
local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
redis.call('ZADD', KEYS[3], 'NX', string.format('%.0f', math.max(now, (last or 0) + 1)), own)
redis.call('EXPIRE', KEYS[3], ARGV[4])
local described = redis.call('HGET', KEYS[1], ARGV[1])
if described then
  index_count(ARGV[1], described, -1)
end
local counted = { [ARGV[1]] = true }
for _, other in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  if other == own then
    break
  end
  local kind, name = string.match(other, '^(%d) %S+ (.*)$')
  if not counted[name] and not redis.call('HGET', KEYS[1], name) then
    counted[name] = true
    entities = entities + 1
    partitioned = partitioned + kind
  end
end
local upto = redis.call('HGET', KEYS[1], '$upto')
local namespace = redis.call('HGET', KEYS[1], '$namespace')
return { upto or '', namespace or '', entities, partitioned }
