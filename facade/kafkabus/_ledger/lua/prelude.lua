-- Head of every request to one ledger: its keys, its clock, its counted writes.
--
-- KEYS  1 meta     hash: cursor (next offset never granted), version (raised by every request), in_flight (messages
--                  granted and not settled), epoch (leader epoch of the record right before the cursor, empty
--                  if not known), leader (the latest leader epoch of any record that the cursor passed, empty
--                  if not known), skipped (1 if key 7 may hold any), has_message_ttl (1 if messages with times
--                  to live of their own are in the log), filer_lease (a lease whose messages are being filed in
--                  their sessions), sessions_unfiled (1 if nothing may be granted before all are filed), cleared
--                  (the highest version of a session's state that was cleared, and whose record stands),
--                  dedup_upto (below it is known which records are duplicates), dedup_checkpoint (below it that
--                  is known from a checkpoint), dedup_epoch (the latest leader epoch of a record below both),
--                  schedules (1 if records of scheduled messages are in the log), scheduled (how many wait for
--                  their time), moving (how many transfers are under way, unless a script died; a checkpoint counts
--                  them anew), closed (1 if no transaction prepares anything any more), transacts (1 if transactions
--                  may have stored records), ring and latest (of duplicates.lua), rules (the version of a
--                  subscription's rules that a claim must know), rules_from (the offset from which the latest version
--                  counts), clock (the latest time of this ledger, ms), slip (ms by which it is ahead of
--                  Redis's clock, because that went back); in tests also test:skew (ms that pass
--                  without waiting), test:clock (ms by which Redis's clock is wrong) and test:fault (which
--                  write fails)
--       2 leases   hash: lease id -> "<first>:<last>:<count>:<kind>:<expiry ms>:<bits>|…", disjoint segments in offset
--                  order; kind is d if the messages were deferred and go back there, s if they are being sorted
--                  (session.lua) or claimed exclusively and their expiry counts no delivery, else n; bits, one
--                  character an offset, are '1' if the message has left the lease; no bits mean that all stay
--                  The lease that locks a session: "<first>[-<last>][*<count>][d],…", d if they were deferred
--       3 expiries zset: lease id by when its first segment expires, ms, or by an earlier time
--       4 redeliverable zset: "<first>:<last>:<count>" by first: ranges granted before, to be granted again
--       5 moving   hash: offset -> "<count>|<intent>" while a transfer is under way, or a transaction (transaction.lua)
--       6 moves    zset: offset, with 15 digits, by when it wants attention, ms (when an unfinished transfer becomes an
--                  orphan, or an ended one is forgotten)
--       7 skipped  zset: offset by itself: records beyond the cursor that no claim may grant
--       8 deferred zset: "<offset>:<count>" by offset: set aside, granted by offset only
--       9 scheduled zset: "<offset>:<when, ms>" by offset: not granted before their time; claims skip them
--       10 due     zset: the same offsets, with 15 digits, by when that is, ms
--       11 moved   hash: offset -> offset there, of transfers that ended lately
--       If the queue has sessions:
--       12 sessions hash: "=<session>" -> "<lease>|<low>|<high>": the lease that locks it, if any, and the numbers of
--                  its first and last chunk; "<number>=<session>" -> a chunk of what waits in it, in offset order:
--                  "<first>[-<last>][*<count>],…"
--       13 free    zset: session that waits and that no client holds, by its turn
--       14 holders hash: lease that locks a session -> "<expiry ms>|<most deliveries>|<session>"
--       15 states  hash: session -> "<version>|<when it was set, ms>|<1 if its record stands, else 0>|<value>", the
--                  value in base 64, "-" if it was cleared
--       If it detects duplicates, the five before the last:
--       16 duplicates zset: offset by itself: records that were found to be duplicates, as long as the log has them
--       17 to 20 ids  hash: id -> "<offset>:<when it was stored, ms>:<source>"; see duplicates.lua
--       Last slot  string: "<number> <reply>" of this client's last request
-- ARGV  1 number   of this request, raised by one each time by its client
--       2 channel  of the entity's notifications
--       3 partition
--       4 JSON list of operations, done in order; each has "op" and its own members
-- Reply JSON: {"status": "ok", "now": ms, "replies": [one an operation], "skew": ms in tests}
--       | {"status": "missing"} | {"status": "stale"}.
--       Numbers that may be large are decimal strings: Lua's own conversion keeps 14 digits.
-- Effect: checks come before writes, a message's new home is written before it leaves the old one, the cursor comes
--       last: Redis does not roll a script back, so a message whose script dies in between may come twice and is never
--       lost.

local META, LEASES, EXPIRIES, REDELIVERABLE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local MOVING, MOVES, SKIPPED, DEFERRED, SLOT = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[#KEYS]
local SCHEDULED, DUE, MOVED = KEYS[9], KEYS[10], KEYS[11]
local SESSIONS, FREE, HOLDERS, STATES, DUPLICATES
local IDS = {}
if #KEYS == 16 or #KEYS == 21 then
  SESSIONS, FREE, HOLDERS, STATES = KEYS[12], KEYS[13], KEYS[14], KEYS[15]
end
if #KEYS >= 17 then
  DUPLICATES = KEYS[#KEYS - 5]
  IDS = { KEYS[#KEYS - 4], KEYS[#KEYS - 3], KEYS[#KEYS - 2], KEYS[#KEYS - 1] }
end

local function num(value)
  return string.format('%.0f', value)
end

-- An offset as a member of a sorted set: members of one score are in the log's order.
local function padded(offset)
  return string.format('%015.0f', offset)
end

local meta = redis.call(
  'HMGET', META, 'cursor', 'version', 'in_flight', 'skipped', 'test:skew', 'test:fault', 'has_message_ttl', 'epoch',
  'leader', 'dedup_upto', 'dedup_checkpoint', 'dedup_epoch', 'schedules', 'moving', 'rules', 'clock', 'slip',
  'test:clock'
)
local ledger = {
  cursor = tonumber(meta[1] or nil),
  version = tonumber(meta[2] or 0),
  in_flight = tonumber(meta[3] or 0),
  skipped = tonumber(meta[4] or 0),
  has_message_ttl = meta[7] and true,
  epoch = meta[8] or '',
  epoch_at = tonumber(meta[1] or nil),
  leader = meta[9] or meta[8] or '',
  dedup_upto = tonumber(meta[10] or 0),
  dedup_checkpoint = tonumber(meta[11] or 0),
  dedup_epoch = tonumber(meta[12] or -1),
  log_truncated = false,
  schedules = meta[13] and true,
  moving = tonumber(meta[14] or 0),
  rules = tonumber(meta[15] or 0),
  notify = false,
}

-- The ledger's clock goes on when Redis's clock is set back, or locks would last that much longer.
-- Steps of up to so many ms are borne.
local STEP = 1000
local time = redis.call('TIME')
local wall = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + tonumber(meta[18] or 0)
local clock, slip, skew = tonumber(meta[16] or 0), tonumber(meta[17] or 0), tonumber(meta[5] or 0)
if wall + slip < clock - STEP then
  slip = clock - wall
end
clock = math.max(clock, wall + slip)
local now = wall + slip + skew

local fault = tonumber(meta[6] or 0)
local function write(...)
  local reply = redis.call(...)
  if fault > 0 then
    fault = fault - 1
    if fault == 0 then
      error('injected fault after ' .. table.concat({ ... }, ' ', 1, 2))
    end
  end
  return reply
end

-- Each operation is a function of its arguments that returns its reply.
local operations = {}
