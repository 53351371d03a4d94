-- Pairs the tickets of a queue without rules: first come, first served.
--
-- ARGV[4] int     how many events may wait to be told; with more, no match is made
-- ARGV[5..]       match id (m_…) and event id (a UUID) in turn, for as many pairs
--                 as are made at most
--
-- Returns what `pass` says. A ticket is matched only while it is QUEUED and not
-- expired, and never with one of the same user.

local limit = #ARGV - 4 -- two tickets a pair
return pass(tonumber(ARGV[4]), limit, function()
	local ids = redis.call('ZRANGE', queue, 0, limit - 1)
	local first
	for _, id in ipairs(ids) do
		local ticket, over, rest = fetch(id)
		if not ticket then
			drop(id, over, rest)
		elseif not first then
			first = ticket
		elseif first.user ~= ticket.user then
			pair(first, ticket)
			first = nil
		end
	end
	return #ids == limit and #left > 0
end)
