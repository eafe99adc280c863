-- Creates a ledger if there is none.
--
-- KEYS  1 meta (see layout.lua)
-- ARGV  1 cursor: the first offset to grant
--       2 1 if the log may hold messages with individual times to live
--       3 1 if duplicates are detected
-- Reply 1 if it was created, 0 if it was there
-- Effect: one write, so there is no half-made ledger.

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
local fields = { 'cursor', ARGV[1], 'version', '1', 'in_flight', '0', 'skipped', '0' }
if ARGV[2] == '1' then
  fields[#fields + 1], fields[#fields + 2] = 'has_message_ttl', '1'
end
if ARGV[3] == '1' then
  fields[#fields + 1], fields[#fields + 2] = 'dedup_upto', ARGV[1]
end
redis.call('HSET', KEYS[1], unpack(fields))
return 1
