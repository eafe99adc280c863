-- Says that a client receives from an entity, and asks who else does.
--
-- KEYS  1 receivers zset: client id by when it was last heard of, ms on Redis's clock
-- ARGV  1 client id
--       2 how long a client counts after it was last heard of, ms
-- Reply ids of the clients that count, this one among them
-- Effect: a client that was not heard of for so long is forgotten, and the set a year after the last client was. A
--       client that was heard of in the future, because Redis's clock was set back since, counts as heard of now.

local YEAR, STEP = 366 * 86400, 60000

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now + STEP), '+inf')) do
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), member)
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%.0f', now - tonumber(ARGV[2])))
redis.call('EXPIRE', KEYS[1], YEAR)
return redis.call('ZRANGE', KEYS[1], 0, -1)
