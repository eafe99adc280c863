-- Head of every request to one ledger, behind layout.lua: its clock, its counted writes.
--
-- KEYS  see layout.lua; the last one is this client's slot: "<number> <reply>" of its last request
-- ARGV  1 number   of this request, raised by one each time by its client
--       2 channel  of the entity's notifications: "<namespace's>/<entity>"
--       3 partition
--       4 JSON list of operations, done in order; each has "op" and its own members
--       5 JSON {"delays": [ms, …], "most": count}, if the entity has a retry policy: a message that is returned, this
--         delivery counted, is postponed: the first delay after the first delivery, the last one after all later
--         ones; but not after so many deliveries, when it is to be dead-lettered
-- Reply JSON: {"status": "ok", "now": ms, "replies": [one an operation], "skew": ms in tests,
--        "changes": true if properties of messages may have been changed}
--       | {"status": "missing"} | {"status": "stale"}.
--       Numbers that may be large are decimal strings: Lua's own conversion keeps 14 digits.
-- Effect: checks come before writes, a message's new home is written before it leaves the old one, the cursor comes
--       last: Redis does not roll a script back, so a message whose script dies in between may come twice and is never
--       lost.

-- epoch is that of the record before this offset.
ledger.epoch_at = ledger.cursor
ledger.log_truncated, ledger.notify = false, false
-- Whether the request changed anything, and when upkeep has to look again because of it, ms.
ledger.wrote, ledger.due = false, math.huge
-- How many deliveries end without a settlement.
ledger.returned = 0
local at_start = {
  cursor = ledger.cursor, in_flight = ledger.in_flight, moving = ledger.moving, dedup_upto = ledger.dedup_upto,
  schedules = ledger.schedules or false,
}
local late_at_start = ledger.late

-- The ledger's clock goes on when Redis's clock is set back, or locks would last that much longer.
-- Steps of up to so many ms are borne.
local STEP = 1000
local time, skew = redis.call('TIME'), ledger['test:skew']
local wall = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + ledger['test:clock']
if wall + ledger.slip < ledger.clock - STEP then
  ledger.slip = ledger.clock - wall
end
ledger.clock = math.max(ledger.clock, wall + ledger.slip)
local now = wall + ledger.slip + skew

-- The sorted sets whose first scores say when upkeep has to look.
local TIMED = { [EXPIRIES] = true, [DUE] = true, [WAKES] = true, [MOVES] = true }

local fault = ledger['test:fault']
local function write(...)
  local command, key, score = ...
  ledger.wrote = true
  if command == 'ZADD' and TIMED[key] then
    ledger.due = math.min(ledger.due, tonumber(score))
  end
  local reply = redis.call(...)
  if fault > 0 then
    fault = fault - 1
    if fault == 0 then
      error('injected fault after ' .. table.concat({ ... }, ' ', 1, 2))
    end
  end
  return reply
end

-- The copies that their destinations refuse, each as {offset, bytes}.
local function refused_copies()
  local refused = {}
  for offset, _, bytes in string.gmatch(ledger.late, LATE_FORM) do
    -- A client of a version without these notes may have ended the transfer.
    if bytes ~= '0' and redis.call('HEXISTS', MOVING, offset) == 1 then
      refused[#refused + 1] = { offset, bytes }
    end
  end
  return refused
end

-- Each operation is a function of its arguments that returns its reply.
local operations = {}
