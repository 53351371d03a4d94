-- Pairs the tickets of a queue without rules: first come, first served.
--
-- ARGV[4] int     most matches that may wait to be announced; with more, none is made
-- ARGV[5..]       match id (m_…) and event id (a UUID) in turn, for the most pairs
--                 that are made
--
-- Returns the result of `pass`. A ticket is matched only while it is QUEUED and not
-- expired, and never with another ticket of its user.

local limit = #ARGV - 4 -- two tickets a pair
return pass(tonumber(ARGV[4]), limit, function()
	local ids = redis.call('ZRANGE', queue, 0, limit - 1)
	load(ids)
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
