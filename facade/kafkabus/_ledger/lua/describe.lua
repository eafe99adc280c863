-- Keeps descriptions of entities, each unless a later one is kept.
--
-- KEYS  1 descriptions hash: entity's name -> "<offset> <text>"; "$upto" is the offset of the descriptions' topic up to
--                      which the hash holds all there is; "$life" differs if the hash was emptied since
--       2 index of the descriptions: see description_index.lua
--       3… string of each name: for a day the offset of the record by which an entity of that name was deleted
-- ARGV  1 life: if these are all there is, "$life" as it was before they were read; else empty
--       2 upto: if these are all there is, the end of the topic when they were read
--       3… name, offset and text of each, the text empty if the entity was deleted; the offset is that of the record in
--          the descriptions' topic, and decides which description is later
-- Reply how many were kept
-- Effect: a client that read the topic a while ago, or wrote to it and comes late, does not undo what others know
-- since. If a description was written right behind what the hash holds, the hash holds all up to it; behind a gap, the
-- next reader of the topic closes it. The index follows.

local DAY = 86400
local kept, named = 0, {}
local is_indexed = ARGV[1] == '' and index_read()
local before = tonumber(redis.call('HGET', KEYS[1], '$upto') or -1)
local upto = before
for index = 3, #ARGV, 3 do
  local name, offset, text = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  local gone = KEYS[index / 3 + 2]
  local described = redis.call('HGET', KEYS[1], name)
  local present = described or redis.call('GET', gone)
  if not present or tonumber(string.match(present, '^%d+')) < tonumber(offset) then
    if text == '' then
      redis.call('HDEL', KEYS[1], name)
      redis.call('SET', gone, offset, 'EX', DAY)
    else
      redis.call('HSET', KEYS[1], name, offset .. ' ' .. text)
      redis.call('DEL', gone)
    end
    if is_indexed then
      index_change(name, described, text ~= '' and text)
    end
    kept = kept + 1
  end
  if tonumber(offset) == upto then
    upto = upto + 1
  end
  named[name] = true
end
if ARGV[1] ~= '' and ARGV[1] == redis.call('HGET', KEYS[1], '$life') then
  upto = math.max(upto, tonumber(ARGV[2]))
  -- An entity that the topic does not name any more was deleted long ago.
  for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    local offset = string.match(redis.call('HGET', KEYS[1], name), '^(%d+) ')
    if offset and not named[name] and tonumber(offset) < tonumber(ARGV[2]) then
      redis.call('HDEL', KEYS[1], name)
    end
  end
end
if upto > before then
  redis.call('HSET', KEYS[1], '$upto', upto)
end
if is_indexed then
  index_seal()
else
  index_anew()
end
return kept
