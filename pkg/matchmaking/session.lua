-- Writes a match's session to both of its tickets, once, and returns the stored one: of
-- two workers with the same match, both announce the same session.
--
-- KEYS[1], KEYS[2] string  mm:ticket:{mode}:<id> of both
-- ARGV[1] string  session (JSON), or empty
-- ARGV[2] string  session_error, or empty
--
-- Returns {session, session_error}.

local place = { ARGV[1], ARGV[2] }
for _, ticket in ipairs(KEYS) do
	local stored = redis.call('HMGET', ticket, 'session', 'session_error')
	if stored[1] then place = { stored[1], stored[2] or '' } end
end
for _, ticket in ipairs(KEYS) do
	-- A vanished ticket must not come back as a hash without expiry.
	if redis.call('EXISTS', ticket) == 1 then
		redis.call('HSET', ticket, 'session', place[1], 'session_error', place[2])
	end
end
return place
