-- Ends a client's turn at something that one client at a time does.
--
-- KEYS  1 turn: token of the client whose turn it is; it expires
-- ARGV  1 token
-- Reply 1 if it was that client's turn, else 0
-- Effect: another client's turn, which began when this one had expired, goes on.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
