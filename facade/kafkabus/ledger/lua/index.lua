-- What waits in each session, of ledgers whose queue has sessions.
--
-- Defines split_chunk, each_chunk, cut_chunk, session_at, new_session, free_session, file_runs, put_in, waiting_in,
-- holder, locked_by, filer and unfiled.

-- How long a chunk may be, in characters, before the next one begins.
local CHUNK = 2000

local function split_chunk(text)
  local runs = {}
  for first, last, count in string.gmatch(text, '(%d+)%-?(%d*)%*?(%d*)') do
    runs[#runs + 1] = { tonumber(first), tonumber(last) or tonumber(first), tonumber(count) or 0 }
  end
  return runs
end

local function join_run(run)
  return num(run[1]) .. (run[2] > run[1] and '-' .. num(run[2]) or '') .. (run[3] > 0 and '*' .. num(run[3]) or '')
end

local function join_chunk(runs)
  local parts = {}
  for index, run in ipairs(runs) do
    parts[index] = join_run(run)
  end
  return table.concat(parts, ',')
end

-- A session that has messages waiting or is locked; nothing where it is neither.
local function session_at(name)
  local lease, low, high = string.match(redis.call('HGET', SESSIONS, '=' .. name) or '', '^([^|]*)|(%d+)|(%d+)$')
  return lease and { name = name, lease = lease, low = tonumber(low), high = tonumber(high) }
end

local function new_session(name)
  return { name = name, lease = '', low = 1, high = 1 }
end

local function chunk_field(session, number)
  return num(number) .. '=' .. session.name
end

local function store_session(session)
  write('HSET', SESSIONS, '=' .. session.name,
    session.lease .. '|' .. num(session.low) .. '|' .. num(session.high))
end

-- Whether messages wait in a session. A chunk that was emptied is gone, and the first one goes last.
local function waiting_in(session)
  return redis.call('HEXISTS', SESSIONS, chunk_field(session, session.low)) == 1
end

-- A chunk in the middle may be gone: taken out, or left by a script that died before it wrote where the next one is.
local function skip_gaps(session)
  while session.low < session.high and not waiting_in(session) do
    session.low = session.low + 1
  end
end

-- Sessions are accepted in the order in which they began to wait; requests come in the order of their versions.
local turns = 0

local function next_turn()
  turns = turns + 1
  return num(ledger.version * 4096 + math.min(turns, 4095))
end

-- Nobody holds a session: it waits for its turn, or is forgotten where nothing waits in it.
local function free_session(session)
  session.lease = ''
  skip_gaps(session)
  if waiting_in(session) then
    write('ZADD', FREE, 'NX', next_turn(), session.name)
    store_session(session)
    ledger.rings = true
  else
    write('HDEL', SESSIONS, '=' .. session.name)
    write('ZREM', FREE, session.name)
  end
end

-- Runs never granted before, behind all that waits in their session.
local function file_runs(name, runs)
  local known = session_at(name)
  local session = known or new_session(name)
  local text = redis.call('HGET', SESSIONS, chunk_field(session, session.high)) or nil
  local parts, length = { text }, #(text or '')
  for _, run in ipairs(runs) do
    local part = join_run({ run[1], run[2], 0 })
    if length > 0 and length + #part > CHUNK then
      write('HSET', SESSIONS, chunk_field(session, session.high), table.concat(parts, ','))
      session.high, parts, length = session.high + 1, {}, 0
      known = nil
    end
    parts[#parts + 1], length = part, length + #part + 1
  end
  write('HSET', SESSIONS, chunk_field(session, session.high), table.concat(parts, ','))
  if not known then
    store_session(session)
  end
  if session.lease == '' then
    write('ZADD', FREE, 'NX', next_turn(), name)
  end
  ledger.rings = true
end

local function insert_run(runs, run)
  local at = 1
  while runs[at] and runs[at][1] < run[1] do
    at = at + 1
  end
  local before, behind = runs[at - 1], runs[at]
  if before and before[2] + 1 == run[1] and before[3] == run[3] then
    before[2] = run[2]
    if behind and before[2] + 1 == behind[1] and behind[3] == before[3] then
      before[2] = behind[2]
      table.remove(runs, at)
    end
  elseif behind and run[2] + 1 == behind[1] and behind[3] == run[3] then
    behind[1] = run[1]
  else
    table.insert(runs, at, run)
  end
end

-- Messages go back to their place in their session. That is nearly always the first chunk: who was granted them was
-- granted all that comes before.
local function put_in(session, first, last, count)
  for number = session.low, session.high do
    local field = chunk_field(session, number)
    local text = redis.call('HGET', SESSIONS, field) or ''
    local runs = split_chunk(text)
    if number == session.high and #text > CHUNK and runs[#runs][2] < first then
      session.high = session.high + 1
      store_session(session)
      write('HSET', SESSIONS, chunk_field(session, session.high), join_run({ first, last, count }))
      break
    elseif number == session.high or (#runs > 0 and runs[#runs][2] > first) then
      insert_run(runs, { first, last, count })
      write('HSET', SESSIONS, field, join_chunk(runs))
      break
    end
  end
  ledger.rings = true
end

-- What waits between two offsets in a session's chunk leaves it. Returns how many messages these were.
local function cut_chunk(name, field, from, upto)
  local rest, gone = {}, 0
  for _, run in ipairs(split_chunk(redis.call('HGET', SESSIONS, field) or '')) do
    gone = gone + math.max(0, math.min(run[2], upto) - math.max(run[1], from) + 1)
    if run[1] < from then
      rest[#rest + 1] = { run[1], math.min(run[2], from - 1), run[3] }
    end
    if run[2] > upto then
      rest[#rest + 1] = { math.max(run[1], upto + 1), run[2], run[3] }
    end
  end
  if gone > 0 and #rest > 0 then
    write('HSET', SESSIONS, field, join_chunk(rest))
  elseif gone > 0 then
    write('HDEL', SESSIONS, field)
    local session = session_at(name) or new_session(name)
    skip_gaps(session)
    store_session(session)
    if session.lease == '' and not waiting_in(session) then
      free_session(session)
    end
  end
  return gone
end

-- Calls visit(name, text, field) for each chunk of all sessions, or of one.
local function each_chunk(only, visit)
  if only then
    local session = session_at(only)
    for number = session and session.low or 1, session and session.high or 0 do
      visit(only, redis.call('HGET', SESSIONS, chunk_field(session, number)) or '', chunk_field(session, number))
    end
    return
  end
  local all = redis.call('HGETALL', SESSIONS)
  for index = 1, #all, 2 do
    local name = string.match(all[index], '^%d+=(.*)$')
    if name then
      visit(name, all[index + 1], all[index])
    end
  end
end

-- Who locks a session by this lease: until when, after how many deliveries a message is given up, which session.
local function holder(id)
  if SESSIONS then
    local expiry, most, name = string.match(redis.call('HGET', HOLDERS, id) or '', '^(%d+)|(%d+)|(.*)$')
    return expiry and { expiry = tonumber(expiry), most = tonumber(most), name = name }
  end
end

-- Likewise, where the lock has not expired.
local function locked_by(id)
  local held = holder(id)
  return held and held.expiry > now and held
end

-- The lease by which somebody is about to place returned ranges.
local function filer()
  local id = SESSIONS and redis.call('HGET', META, 'filer')
  return id and redis.call('HEXISTS', LEASES, id) == 1 and id
end

-- Whether nothing may be granted yet: what was made anew of a checkpoint is not all placed. Other returned messages are
-- on their way out, and nobody waits for them.
local function unfiled()
  if not redis.call('HGET', META, 'unplaced') then
    return false
  end
  if redis.call('ZCARD', RETURNED) > 0 or filer() then
    return true
  end
  write('HDEL', META, 'unplaced')
  return false
end
