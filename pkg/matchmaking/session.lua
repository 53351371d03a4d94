-- Writes where a match takes place to both of its tickets, once. Returns what stands
-- there now: of two who were asked for the same match, both tell the same.
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
	-- A ticket that is gone must not come back as a hash without an end.
	if redis.call('EXISTS', ticket) == 1 then
		redis.call('HSET', ticket, 'session', place[1], 'session_error', place[2])
	end
end
return place
