-- The messages that wait in each session, of ledgers whose queue has sessions.
--
-- Defines split_chunk, join_run, last_of, split_front, each_chunk, common_runs, cut_chunk, session_at, new_session,
-- store_session, starts_postponed, free_session, file_words, split_postponed_words, go_home, arrive, waiting_in,
-- holder, write_holder, locked_by, filer_lease and unfiled.

-- How long a chunk may be, in characters, before the next one begins.
local CHUNK = 500

local function split_chunk(text)
  local runs = {}
  for first, last, count in string.gmatch(text, RUN_FORM) do
    runs[#runs + 1] = { tonumber(first), tonumber(last) or tonumber(first), tonumber(count) or 0 }
  end
  return runs
end

local function join_run(run)
  return num(run[1]) .. (run[2] > run[1] and '-' .. num(run[2]) or '') .. (run[3] > 0 and '*' .. num(run[3]) or '')
end

local function join_runs(runs)
  local parts = {}
  for index, run in ipairs(runs) do
    parts[index] = join_run(run)
  end
  return table.concat(parts, ',')
end

-- How many messages a chunk without deliveries has.
local function count_words(text)
  if string.find(text, '-', 1, true) then
    local count = 0
    for first, last in string.gmatch(text, '(%d+)%-?(%d*)') do
      count = count + (last == '' and 1 or tonumber(last) - tonumber(first) + 1)
    end
    return count
  end
  local _, commas = string.gsub(text, ',', ',')
  return commas + 1
end

-- The last offset of a chunk, or of the lease that locks a session.
local function last_of(text)
  -- No word is longer than this.
  local first, last = string.match(string.sub(text, -50), '(%d+)%-?(%d*)[^,]*$')
  return tonumber(last) or tonumber(first)
end

-- The first messages of a chunk, up to as many as are wanted, the rest of it, and how many the first ones are. Chunks
-- are cut as text: taking them apart takes ten times as long.
local function split_front(text, want)
  local at, granted, ranges = 1, 0, string.find(text, '-', 1, true)
  local all = not ranges and count_words(text)
  if all and all <= want then
    return text, '', all
  end
  while at <= #text and granted < want do
    local stop = (string.find(text, ',', at, true) or #text + 1) - 1
    local first, last, count
    if ranges then
      first, last, count = string.match(string.sub(text, at, stop), '^(%d+)%-(%d+)(.*)$')
    end
    local size = first and tonumber(last) - tonumber(first) + 1 or 1
    if granted + size > want then
      local cut = tonumber(first) + want - granted - 1
      return string.sub(text, 1, at - 1) .. join_run({ tonumber(first), cut, 0 }) .. count,
        join_run({ cut + 1, tonumber(last), 0 }) .. count .. string.sub(text, stop + 1), want
    end
    granted, at = granted + size, stop + 2
  end
  return string.sub(text, 1, at - 2), string.sub(text, at), granted
end

local function read_session(name, text)
  local lease, low, high = string.match(text or '', '^([^|]*)|(%-?%d+)|(%-?%d+)$')
  return lease and { name = name, lease = lease, low = tonumber(low), high = tonumber(high) }
end

-- A session that has messages waiting or is locked; nothing if it is neither.
local function session_at(name)
  return read_session(name, redis.call('HGET', SESSIONS, '=' .. name))
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

-- Whether messages wait in a session. An emptied chunk is deleted, and the first chunk is emptied last.
local function waiting_in(session)
  return redis.call('HEXISTS', SESSIONS, chunk_field(session, session.low)) == 1
end

-- A chunk in the middle may be gone: taken out, or left by a script that died before it wrote which chunk is next.
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

-- The offset of the first message that waits in a session, if it is postponed, and not among those that are woken (a
-- set); else nothing.
local function starts_postponed(session, woken)
  local text = has_postponed() and redis.call('HGET', SESSIONS, chunk_field(session, session.low)) or ''
  local first = tonumber(string.match(text, '^%d+'))
  return first and not (woken and woken[first]) and first_postponed(first, first) and first or nil
end

-- Frees a session: it waits for its turn, or for the time of its first message, or is forgotten if no message waits in
-- it.
local function free_session(session)
  session.lease = ''
  skip_gaps(session)
  if waiting_in(session) then
    if starts_postponed(session) then
      write('ZREM', FREE, session.name)
    else
      write('ZADD', FREE, 'NX', next_turn(), session.name)
      ledger.notify = true
    end
    store_session(session)
  else
    write('HDEL', SESSIONS, '=' .. session.name)
    write('ZREM', FREE, session.name)
  end
end

-- Merges two ascending lists of runs. Runs that touch and were delivered equally often are joined.
local function merge_runs(some, others)
  local merged, i, j = {}, 1, 1
  while some[i] or others[j] do
    local run
    if not others[j] or (some[i] and some[i][1] < others[j][1]) then
      run, i = some[i], i + 1
    else
      run, j = others[j], j + 1
    end
    local before = merged[#merged]
    if before and before[2] + 1 == run[1] and before[3] == run[3] then
      before[2] = run[2]
    else
      merged[#merged + 1] = { run[1], run[2], run[3] }
    end
  end
  return merged
end

-- Runs as texts of a chunk's length.
local function join_chunks(runs)
  local texts, parts, length = {}, {}, 0
  for _, run in ipairs(runs) do
    local part = join_run(run)
    if length > 0 and length + #part > CHUNK then
      texts[#texts + 1] = table.concat(parts, ',')
      parts, length = {}, 0
    end
    parts[#parts + 1], length = part, length + #part + 1
  end
  texts[#texts + 1] = table.concat(parts, ',')
  return texts
end

-- Stores runs in place of a chunk. Runs that are too long go on behind the last chunk, or begin before the first one.
local function store_chunk(session, number, runs)
  if number > session.low and number < session.high then
    return write('HSET', SESSIONS, chunk_field(session, number), join_runs(runs))
  end
  local texts = join_chunks(runs)
  local from = number == session.high and number or number - #texts + 1
  for index = #texts, 1, -1 do
    if from + index - 1 ~= number then
      write('HSET', SESSIONS, chunk_field(session, from + index - 1), texts[index])
    end
  end
  session.low, session.high = math.min(session.low, from), math.max(session.high, from + #texts - 1)
  if #texts > 1 then
    store_session(session)
  end
  write('HSET', SESSIONS, chunk_field(session, number), texts[number - from + 1])
end

-- Puts ascending runs back in their place in their session. That is nearly always the first chunk: the client that was
-- granted them was granted all that come before.
local function put_in(session, runs)
  local index = 1
  for number = session.low, session.high do
    if not runs[index] then
      return
    end
    local waiting = split_chunk(redis.call('HGET', SESSIONS, chunk_field(session, number)) or '')
    local before = waiting[#waiting] and waiting[#waiting][1] or 0
    local coming = {}
    while runs[index] and (number == session.high or runs[index][1] < before) do
      coming[#coming + 1], index = runs[index], index + 1
    end
    if #coming > 0 then
      store_chunk(session, number, merge_runs(coming, waiting))
    end
  end
end

-- The end of the last word that ends within so many characters from `at` on; before `at` if there is none.
local function fitting(words, at, room)
  if #words - at < room then
    return #words
  end
  return at - 2 + (string.match(string.sub(words, at, at + room), '^.*(),') or 1)
end

-- Appends words to those of a session's last chunk, as text: taking them apart takes ten times as long.
local function append_words(session, text, words)
  local at = 1
  if text then
    local stop = fitting(words, at, CHUNK - #text - 1)
    if stop > 0 then
      write('HSET', SESSIONS, chunk_field(session, session.high), text .. ',' .. string.sub(words, 1, stop))
      at = stop + 2
    end
    if at <= #words then
      session.high = session.high + 1
    end
  end
  while at <= #words do
    local stop = math.max(fitting(words, at, CHUNK), (string.find(words, ',', at, true) or #words + 1) - 1)
    write('HSET', SESSIONS, chunk_field(session, session.high), string.sub(words, at, stop))
    at = stop + 2
    if at <= #words then
      session.high = session.high + 1
    end
  end
end

-- Files messages never granted before, behind all that wait in their session; but messages that were seized ahead of
-- the cursor, and given back, may wait there already.
local function file_words(name, words)
  -- Most sessions have one chunk, the first.
  local found = redis.call('HMGET', SESSIONS, '=' .. name, '1=' .. name)
  local known = read_session(name, found[1])
  local session, text = known or new_session(name), found[2] or nil
  if session.high ~= 1 then
    text = redis.call('HGET', SESSIONS, chunk_field(session, session.high)) or nil
  end
  local chunks = session.high
  if text and last_of(text) > tonumber(string.match(words, '^%d+')) then
    put_in(session, split_chunk(words))
  else
    append_words(session, text, words)
  end
  -- A session that is known and waits is among the free ones already, because it becomes known last; unless its first
  -- message was postponed, and comes behind these.
  if session.lease == '' and (has_postponed() or not (known and text)) and not starts_postponed(session) then
    write('ZADD', FREE, 'NX', next_turn(), name)
  end
  if not known or session.high > chunks then
    store_session(session)
  end
  ledger.notify = true
end

-- Messages that go back to their sessions, gathered so that each chunk is written once. arrive() puts them there.
local homeward, order = {}, {}

local function go_home(name, first, last, count)
  if not homeward[name] then
    homeward[name], order[#order + 1] = {}, name
  end
  table.insert(homeward[name], { first, last, count })
end

local function arrive()
  for _, name in ipairs(order) do
    local session = session_at(name) or new_session(name)
    put_in(session, homeward[name])
    if session.lease == '' then
      free_session(session)
    end
    ledger.notify = true
  end
  homeward, order = {}, {}
end

-- The parts of runs that lie in ranges, both ascending, and the other parts.
local function common_runs(runs, ranges)
  local inside, rest, index = {}, {}, 1
  for _, run in ipairs(runs) do
    local at = run[1]
    while at <= run[2] do
      local range = ranges[index]
      if not range or range[1] > run[2] then
        rest[#rest + 1] = { at, run[2], run[3] }
        break
      elseif range[2] < at then
        index = index + 1
      elseif range[1] > at then
        rest[#rest + 1] = { at, range[1] - 1, run[3] }
        at = range[1]
      else
        local last = math.min(run[2], range[2])
        inside[#inside + 1] = { at, last, run[3] }
        at = last + 1
      end
    end
  end
  return inside, rest
end

-- Takes the messages within ranges out of a session's chunk; none of them is postponed any more. Returns how many these
-- were.
local function cut_chunk(name, field, ranges)
  local inside, rest = common_runs(split_chunk(redis.call('HGET', SESSIONS, field) or ''), ranges)
  local gone = 0
  for _, run in ipairs(inside) do
    gone = gone + run[2] - run[1] + 1
  end
  if gone > 0 and #rest > 0 then
    write('HSET', SESSIONS, field, join_runs(rest))
  elseif gone > 0 then
    write('HDEL', SESSIONS, field)
    local session = session_at(name) or new_session(name)
    skip_gaps(session)
    store_session(session)
    if session.lease == '' and not waiting_in(session) then
      free_session(session)
    end
  end
  if gone > 0 and has_postponed() then
    local session = session_at(name)
    if session and session.lease == '' then
      free_session(session)
    end
    for _, run in ipairs(inside) do
      forget_postponed(run[1], run[2])
    end
  end
  return gone
end

-- The part of words of a chunk that comes before the first postponed message, and the rest from there on.
local function split_postponed_words(text)
  if not has_postponed() or not first_postponed(tonumber(string.match(text, '^%d+')), last_of(text)) then
    return text, ''
  end
  local before, rest = {}, {}
  for _, run in ipairs(split_chunk(text)) do
    local member = #rest == 0 and first_postponed(run[1], run[2])
    local at = member and split_postponed(member)
    if at then
      if at > run[1] then
        before[#before + 1] = { run[1], at - 1, run[3] }
      end
      rest[1] = { at, run[2], run[3] }
    else
      table.insert(#rest > 0 and rest or before, run)
    end
  end
  return join_runs(before), join_runs(rest)
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
    local name = string.match(all[index], '^%-?%d+=(.*)$')
    if name then
      visit(name, all[index + 1], all[index])
    end
  end
end

-- The lock of a session by this lease: until when, after how many deliveries a message is given up, since when and by
-- which receiver, which session.
local function holder(id)
  if SESSIONS then
    local form = '^' .. HOLDER_FORM .. '$'
    local expiry, most, since, by, name = string.match(redis.call('HGET', HOLDERS, id) or '', form)
    return expiry and {
      expiry = tonumber(expiry), max_deliveries = tonumber(most), since = tonumber(since), by = by, name = name,
    }
  end
end

local function write_holder(id, held, expiry)
  local taken = held.since and '@' .. num(held.since) .. '@' .. held.by or ''
  write('HSET', HOLDERS, id, num(expiry) .. '|' .. num(held.max_deliveries) .. taken .. '|' .. held.name)
end

-- The same, if the lock has not expired.
local function locked_by(id)
  local held = holder(id)
  return held and held.expiry > now and held
end

-- The lease of the client that is about to place returned ranges.
local function filer_lease()
  local id = SESSIONS and redis.call('HGET', META, 'filer_lease')
  return id and redis.call('HEXISTS', LEASES, id) == 1 and id
end

-- Whether nothing may be granted yet, because not all messages of a rebuilt ledger are placed. Other returned messages
-- are on their way out, and no receiver waits for them.
local function unfiled()
  if not redis.call('HGET', META, 'sessions_unfiled') then
    return false
  end
  if redis.call('ZCARD', REDELIVERABLE) > 0 or filer_lease() then
    return true
  end
  write('HDEL', META, 'sessions_unfiled')
  return false
end
