-- Finds ledgers that were changed since upkeep wrote them down, or are gone.
--
-- KEYS  the hash "meta" of each ledger
-- ARGV  for each of them the text "changed" when upkeep last wrote it down; "-" if it did not
-- Reply the positions, from 1, of those that have another one now, or none
-- Effect: none

local found = {}
for place, meta in ipairs(KEYS) do
  local known = redis.call('HMGET', meta, 'cursor', 'changed')
  if not known[1] or (known[2] or '') ~= ARGV[place] then
    found[#found + 1] = place
  end
end
return found
