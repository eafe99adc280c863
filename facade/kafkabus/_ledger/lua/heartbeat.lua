-- Says that a client receives from entities, or no longer does, and asks who else does.
--
-- KEYS  receivers zset of each entity: client id by when it was last heard of, ms on Redis's clock
-- ARGV  1 client id
--       2 how long a client counts after it was last heard of, ms
--       3 1 if it receives no more: it counts no longer, and its time stays until another client is heard of
-- Reply for each entity the ids of the clients that count, and this one
-- Effect: a client that was not heard of for so long is forgotten, and the set a year after the last client was. A
--       client that was heard of in the future, because Redis's clock was set back since, counts as heard of now.

local YEAR, STEP = 366 * 86400, 60000

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local oldest = now - tonumber(ARGV[2])
local heard, past = string.format('%.0f', now), '(' .. string.format('%.0f', oldest)
local future = '(' .. string.format('%.0f', now + STEP)
local members = {}
for number, key in ipairs(KEYS) do
  redis.call('ZADD', key, heard, ARGV[1])
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, future, '+inf')) do
    redis.call('ZADD', key, heard, member)
  end
  redis.call('ZREMRANGEBYSCORE', key, '-inf', past)
  if ARGV[3] == '1' then
    redis.call('ZADD', key, string.format('%.0f', oldest - 1), ARGV[1])
  end
  redis.call('EXPIRE', key, YEAR)
  members[number] = redis.call('ZRANGE', key, 0, -1)
end
return members
