-- Reads a ticket, and why it is not matched yet. It writes nothing.
--
-- KEYS[5] string  mm:ticket:{mode}:<id>
-- ARGV[4] string  ticket id
-- ARGV[5] string  user_id of the caller
-- ARGV[6] int     how many matches may wait to be told
--
-- Returns {} where this user has no such ticket. Otherwise {now, fields}, and for
-- one that waits also {position from 0, depth, passed_at, matched_at, wait_ms, the
-- next look at it (ms, 0 for none), its level, whether matching is paused, whether
-- there is a partner, whether others agree with it}.

local fields = redis.call('HGETALL', KEYS[5])
if #fields == 0 or redis.call('HGET', KEYS[5], 'user_id') ~= ARGV[5] then return {} end
local ticket = fetch(ARGV[4])
if not ticket then return { now, fields } end

local position = redis.call('ZRANK', queue, ticket.id) or 0
local depth = redis.call('ZCARD', queue)
local numbers = redis.call('HMGET', stats, 'passed_at', 'matched_at', 'wait_ms')
local paused = redis.call('XLEN', events) >= tonumber(ARGV[6])

-- agrees says whether another ticket agrees with this one, whatever its skill.
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

-- What no reason will tell is not looked for: it costs more than all the rest.
local agreeing, found = depth > 1, depth > 1
if ticket.put ~= '' and found and not paused then
	-- The level is of a pass with other rules when the windows have become fewer.
	found = partner(ticket, math.min(ticket.level, top), false)
	agreeing = found or agrees()
end
return { now, fields, {
	position, depth, tonumber(numbers[1] or nil) or 0, tonumber(numbers[2] or nil) or 0, tonumber(numbers[3] or nil) or -1,
	tonumber(redis.call('ZSCORE', due, ticket.id)) or 0, ticket.level,
	paused and 1 or 0, found and 1 or 0, agreeing and 1 or 0,
} }
