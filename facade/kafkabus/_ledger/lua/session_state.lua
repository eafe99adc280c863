-- The states that applications keep of their sessions. A state is durable once its record is in the states' topic,
-- where the last record of a session counts; versions show which state is later.
--
-- Defines
--   get_state {lease, session}  of the session that the lease locks, or that is named. Reply: {"gone": true} if the
--             lease has expired, or as of note_stored_state; {} if there is none
--   set_state {lease, session, value}  sets it; without value, clears it. Reply: {"gone": true} or as of
--             note_stored_state
--   note_stored_state {session, version}  a record of this version was stored
--             Reply: {}, or if a state of another version counts, that one, whose record is to be stored
--                    again: {"session": name, "version": number, "updated": ms, "value": text, "unstored": true}; no
--                    value if it is cleared, no unstored if its record is known to be stored. With "lost": true
--                    if that state is not later: Redis lost the stored one, and the session's lock with it
--   list_updated_states {after}  sessions whose state was set after this moment, ms. Reply: {"names": [name, …]}

-- A session's state: version, when it was set, whether its record is stored, value ("-": cleared); nothing if none.
local function state_of(name)
  local version, updated, stored, value = string.match(redis.call('HGET', STATES, name) or '',
    '^' .. STATE_FORM .. '$')
  return version and { version = tonumber(version), updated = updated, stored = stored == '1', value = value }
end

local function tell_state(name, state)
  return {
    session = name, version = num(state.version), updated = state.updated, unstored = not state.stored or nil,
    value = state.value ~= '-' and state.value or nil,
  }
end

local function put_state(name, state)
  write('HSET', STATES, name, join_state(state.version, state.updated, state.stored and '1' or '0', state.value))
end

-- The session that an operation is about; nothing if its lease has expired.
local function session_asked(op)
  local held = not op.session and locked_by(op.lease)
  return op.session or held and held.name
end

operations.get_state = function(op)
  expire_leases()
  local name = session_asked(op)
  if not name then
    return { gone = true }
  end
  local state = state_of(name)
  return state and tell_state(name, state) or {}
end

operations.set_state = function(op)
  expire_leases()
  local name = session_asked(op)
  if not name then
    return { gone = true }
  end
  local before = state_of(name)
  local state = {
    version = math.max(before and before.version or 0, ledger.version) + 1, updated = num(now), stored = false,
    value = op.value or '-',
  }
  put_state(name, state)
  return tell_state(name, state)
end

operations.note_stored_state = function(op)
  local state = state_of(op.session)
  if not state then
    -- Cleared by a record that is known to be stored; or Redis lost the state, and this record must not count either.
    state = { version = ledger.version + 1, updated = num(now), stored = false, value = '-' }
    put_state(op.session, state)
    local reply = tell_state(op.session, state)
    reply.lost = op.version > tonumber(redis.call('HGET', META, 'cleared') or 0) or nil
    return reply
  end
  if state.version ~= op.version then
    local reply = tell_state(op.session, state)
    reply.lost = op.version > state.version or nil
    return reply
  end
  if state.value == '-' then
    write('HSET', META, 'cleared', num(state.version))
    write('HDEL', STATES, op.session)
  else
    state.stored = true
    put_state(op.session, state)
  end
  return {}
end

operations.list_updated_states = function(op)
  local names = {}
  for _, name in ipairs(redis.call('HKEYS', STATES)) do
    local state = state_of(name)
    if state.value ~= '-' and tonumber(state.updated) > op.after then
      names[#names + 1] = name
    end
  end
  return { names = names }
end
