-- Notes a match's session on both of its tickets, once, and returns the noted one: of two
-- workers with the same match, both announce the same session.
--
-- KEYS[1], KEYS[2] string  mm:ticket:{mode}:<id> of both, see queue.lua
-- ARGV[1] string  "session <JSON>" or "session_error <text>"

local noted, without = nil, {}
for _, ticket in ipairs(KEYS) do
	local text = redis.call('GET', ticket)
	-- Only in what happened: a caller chooses some of the fields before it.
	local before = text and string.match(text, '%z(session[ _]%Z*)', select(10, struct.unpack('sssssssss', text)) - 1)
	noted = noted or before
	-- A vanished ticket must not come back without expiry.
	if text and not before then without[#without + 1] = ticket end
end
noted = noted or ARGV[1]
for _, ticket in ipairs(without) do redis.call('APPEND', ticket, noted .. '\0') end
return noted
