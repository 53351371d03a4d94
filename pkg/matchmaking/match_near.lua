-- Pairs the tickets of a queue with rules: attributes that must agree, or a skill
-- window that widens.
--
-- Two tickets become compatible when the younger one joins, or when the window of
-- either becomes wide enough. So a ticket is examined when it joins and when its window
-- widens (mm:due), and not in between: the cost of a match does not depend on how many
-- wait. Of the due tickets, the longest-waiting is examined first.
--
-- ARGV[4] int     most matches that may wait to be announced; with more, none is made
-- ARGV[5..]       match id (m_…) and event id (a UUID) in turn, for the most tickets
--                 that are examined
--
-- Returns the result of `pass`.

local looks = (#ARGV - 4) / 2

-- due_now returns the ids to examine, the longest-waiting first.
local function due_now()
	local ids = redis.call('ZRANGE', due, '-inf', now, 'BYSCORE', 'LIMIT', 0, looks)
	table.sort(ids)
	load(ids)
	return ids
end

-- look_again schedules the next examination of a ticket that found no partner: when its
-- window widens. Until then joining tickets find it.
local function look_again(ticket, level)
	if level ~= ticket.level then
		for pool in pools(ticket.put) do
			local key = pool_key(level, pool)
			redis.call('ZREM', pool_key(ticket.level, pool), ticket.id)
			redis.call('ZADD', key, ticket.score, ticket.id)
			keep(key, ticket.expires - now + 60000)
			known[key] = true
		end
		note(ticket, 'level ' .. level, level)
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
				more = true -- it is still due: the next pass continues here
			else
				look_again(ticket, level)
			end
		elseif not taken[id] then
			drop(id, over, rest)
		end
	end
	return more or #ids == looks
end)
