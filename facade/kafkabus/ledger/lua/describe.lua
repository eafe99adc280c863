-- Keeps descriptions of entities, each where no later one is kept.
--
-- KEYS  1 descriptions hash: entity's name -> "<offset> <text>"; "$loaded" once the hash holds all there is; "$life"
--                      tells one that was emptied from the one before; "$server" is the Redis in which it was begun
--       2… string of each name: for a day the offset of the record by which an entity of that name was deleted
-- ARGV  1 life: where these are all there is, "$life" as it was before they were read; else nothing
--       2… name, offset and text of each, the text empty where the entity was deleted; the offset is that of the record
--          in the descriptions' topic, which decides what is later
-- Reply how many were kept
-- Effect: who read the topic a while ago, or wrote to it and comes late, does not undo what others know since.

local DAY = 86400
local kept = 0
for index = 2, #ARGV, 3 do
  local name, offset, text = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  local gone = KEYS[(index + 4) / 3]
  local present = redis.call('HGET', KEYS[1], name) or redis.call('GET', gone)
  if not present or tonumber(string.match(present, '^%d+')) < tonumber(offset) then
    if text == '' then
      redis.call('HDEL', KEYS[1], name)
      redis.call('SET', gone, offset, 'EX', DAY)
    else
      redis.call('HSET', KEYS[1], name, offset .. ' ' .. text)
      redis.call('DEL', gone)
    end
    kept = kept + 1
  end
end
if ARGV[1] ~= '' and ARGV[1] == redis.call('HGET', KEYS[1], '$life') then
  redis.call('HSET', KEYS[1], '$loaded', '1')
end
return kept
