-- Pairs the tickets of a queue with rules: attributes that must agree, or a skill
-- window that widens.
--
-- Two who wait can be matched from the moment on at which the younger one joins,
-- or the window of either becomes wide enough. So a ticket is looked at when it
-- joins and when its window widens (mm:due), and not in between: what a match
-- costs does not depend on how many wait. Of those due, the longest-waiting is
-- looked at first.
--
-- ARGV[4] int     how many events may wait to be told; with more, no match is made
-- ARGV[5..]       match id (m_…) and event id (a UUID) in turn; as many tickets are
--                 looked at, at most
--
-- Returns what `pass` says.

local looks = (#ARGV - 4) / 2

-- due_now returns the ids to look at, the longest-waiting first.
local function due_now()
	local ids = redis.call('ZRANGE', due, '-inf', now, 'BYSCORE', 'LIMIT', 0, looks)
	table.sort(ids)
	return ids
end

-- look_again says when a ticket that found nobody is looked at next: when its
-- window widens. Until then those who join find it.
local function look_again(ticket, level)
	if level ~= ticket.level then
		for pool in pools(ticket.put) do
			local key = pool_key(level, pool)
			redis.call('ZREM', pool_key(ticket.level, pool), ticket.id)
			redis.call('ZADD', key, ticket.score, ticket.id)
			keep(key, ticket.expires - now + 60000)
			known[key] = true
		end
		redis.call('HSET', ticket_key(ticket.id), 'level', level)
	end
	if ranked and level < top then
		redis.call('ZADD', due, ticket.created + (level + 1) * widen_every, ticket.id)
	else
		redis.call('ZREM', due, ticket.id)
	end
end

return pass(tonumber(ARGV[4]), looks, function()
	local more = sweep(looks)
	local ids, taken = due_now(), {}
	for _, id in ipairs(ids) do
		local ticket, over, rest
		if not taken[id] then ticket, over, rest = fetch(id) end
		if ticket then
			local level = math.min(math.floor((now - ticket.created) / widen_every), top)
			local other, unsure = partner(ticket, level, true)
			if other then
				local a, b = ticket, other
				if b.id < a.id then a, b = b, a end
				pair(a, b)
				taken[other.id] = true
			elseif unsure then
				more = true -- it is due still: the next pass goes on where this one stopped
			else
				look_again(ticket, level)
			end
		elseif not taken[id] then
			drop(id, over, rest)
		end
	end
	return more or #ids == looks
end)
