-- Reads a ticket, and the reason why it still waits. It writes nothing.
--
-- KEYS[5] string  mm:ticket:{mode}:<id>
-- ARGV[4] string  ticket id
-- ARGV[5] string  user_id of the caller
-- ARGV[6] int     most matches that may wait to be announced
--
-- Returns {} if this user has no such ticket. Otherwise {now, its text}, and for a waiting
-- ticket also {position from 0, depth, passed_at, matched_at, wait_ms, the time of its
-- next examination (ms, 0 for none), its level, whether matching is paused, whether there
-- is a partner, whether others agree with it}.

local text = redis.call('GET', KEYS[5])
if not text or ticket_of(ARGV[4], text).user ~= ARGV[5] then return {} end
local ticket = fetch(ARGV[4])
if not ticket then return { now, text } end

local position = redis.call('ZRANK', queue, ticket.id) or 0
local depth = redis.call('ZCARD', queue)
local numbers = redis.call('HMGET', stats, 'passed_at', 'matched_at', 'wait_ms')
local paused = redis.call('XLEN', events) >= tonumber(ARGV[6])

-- agrees returns whether another ticket agrees with this one, at any skill.
local function agrees()
	for level = 0, top do
		for pool in pools(ticket.ask) do
			local key = pool_key(level, pool)
			if occupied(key) then
				local others = redis.call('ZCARD', key)
				if level == ticket.level and redis.call('ZSCORE', key, ticket.id) then others = others - 1 end
				if others > 0 then return true end
			end
		end
	end
	return false
end

-- Search only if a reason depends on it: it costs more than all the rest.
local agreeing, found = depth > 1, depth > 1
if ticket.put ~= '' and found and not paused then
	-- The level may come from earlier rules with more windows.
	found = partner(ticket, math.min(ticket.level, top), false)
	agreeing = found or agrees()
end
return { now, text, {
	position, depth, tonumber(numbers[1] or nil) or 0, tonumber(numbers[2] or nil) or 0, tonumber(numbers[3] or nil) or -1,
	tonumber(redis.call('ZSCORE', due, ticket.id)) or 0, ticket.level,
	paused and 1 or 0, found and 1 or 0, agreeing and 1 or 0,
} }
