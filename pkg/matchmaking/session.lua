-- Writes where a match takes place to both of its tickets, once.
--
-- KEYS[1], KEYS[2] string  mm:ticket:{mode}:<id> of both
-- ARGV[1] string  session (JSON), or empty
-- ARGV[2] string  session_error, or empty

for _, ticket in ipairs(KEYS) do
	-- A ticket that is gone must not come back as a hash without an end.
	if redis.call('EXISTS', ticket) == 1 and redis.call('HEXISTS', ticket, 'session') == 0 then
		redis.call('HSET', ticket, 'session', ARGV[1], 'session_error', ARGV[2])
	end
end
return 1
