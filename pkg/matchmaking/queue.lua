-- The shared part of all scripts; package matchmaking puts it before each of them.
--
-- A mode's keys contain its name in braces, so that Redis Cluster keeps them in one
-- slot; keys that are not in KEYS are built with the same tag.
--
-- KEYS[1] string  mm:queue:{mode}   sorted set: ticket id -> created_at (ms)
-- KEYS[2] string  mm:due:{mode}     sorted set: ticket id -> time of its next examination (ms); rules only
-- KEYS[3] string  mm:stats:{mode}   hash: passed_at, matched_at, wait_ms
-- KEYS[4] string  mm:events:{mode}  stream of matches
-- ARGV[1] string  mode
-- ARGV[2] string  skill windows, narrow to wide, separated by commas; empty where skill does not count
-- ARGV[3] int     time in ms after which a ticket's window becomes the next one
--
-- Other keys: mm:ticket:{mode}:<id>, a string (see ticket_of), and, for modes with rules,
-- mm:pool:{mode}:<level>:<pool>, a sorted set: ticket id -> skill, or created_at where
-- skill does not count. A ticket's level is the index of its window.
--
-- A ticket's id begins with Redis' time of joining (see join.lua): ids sort by waiting
-- time, the longest first.
--
-- Redis does not roll back a failed script. So a script reads everything that can fail
-- (a key of another type) before its first write, and writes the events of all matches
-- that it made.

local queue, due, stats, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local mode = ARGV[1]
local widen_every = tonumber(ARGV[3])
local windows = {}
for width in string.gmatch(ARGV[2], '[^,]+') do windows[#windows + 1] = tonumber(width) end
local ranked = #windows > 0
local top = math.max(#windows - 1, 0) -- the last level

-- now is in ms, by Redis' own clock, whichever process calls.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_text = string.format('%.0f', now)

local function ticket_key(id) return 'mm:ticket:{' .. mode .. '}:' .. id end
local function idemp_key(user, key) return 'mm:idemp:{' .. mode .. '}:' .. user .. ':' .. key end
local function pool_key(level, pool) return 'mm:pool:{' .. mode .. '}:' .. level .. ':' .. pool end

local function pools(list) return string.gmatch(list, '[^\t]+') end

-- keep extends a pool's life to ms at least: other tickets in it may wait longer.
local function keep(key, ms) redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), ms)) end

-- A ticket is a text that only grows, which takes half the memory of a hash; a pass reads
-- those that it needs at once and adds a few bytes to each. Every field ends with a zero
-- byte. First come the fields that stay: created_at, expires_at, user_id, traceparent, score
-- in pools, the pools that it is in (put) and those of the tickets that it agrees with
-- (ask), both separated by tabs and empty where the mode has no rules, the caller's key,
-- and attributes (JSON). Then comes what happened: "level <number>",
-- "MATCHED <match id> <matched_at> <user_id of the other>", "CANCELLED" or "EXPIRED", and
-- after a match "session <JSON>" or "session_error <text>".
local fields = 'sssssssss'

local function ticket_of(id, text)
	local created, expires, user, trace, score, put, ask, key, _, rest = struct.unpack(fields, text)
	local t = {
		id = id, created = tonumber(created), expires = tonumber(expires), user = user, trace = trace, score = tonumber(score),
		put = put, ask = ask, key = key, level = 0,
	}
	for word, number in string.gmatch(string.sub(text, rest), '(%a+) ?(%d*)%Z*%z') do
		if word == 'level' then t.level = tonumber(number) else t.over = true end
	end
	return t
end

-- note adds to a ticket what happened to it, of which only a level is not its end. Its TTL
-- stays.
local function note(ticket, what, level)
	redis.call('APPEND', ticket_key(ticket.id), what .. '\0')
	ticket.level, ticket.over = level or ticket.level, not level
end

-- tickets are those that this script has read, by id; false for one that is gone.
local tickets = {}

-- load reads tickets together, which is much faster than one by one. A key of another
-- type is no ticket.
local function load(ids)
	if #ids == 0 then return end
	local keys = {}
	for i, id in ipairs(ids) do keys[i] = ticket_key(id) end
	for i, text in ipairs(redis.call('MGET', unpack(keys))) do
		tickets[ids[i]] = text and ticket_of(ids[i], text)
	end
end

-- fetch returns a ticket that may be matched. Otherwise it returns nil, whether the
-- ticket is gone or expired (not matched or cancelled), and the rest of it.
local function fetch(id)
	if tickets[id] == nil then load({ id }) end
	local t = tickets[id]
	if not t then return nil, true end
	if not t.over and t.expires > now then return t, false end
	return nil, not t.over, t
end

-- leave removes a ticket from its pools now, and from the queue at settle.
local left = {}
local function leave(id, ticket)
	left[#left + 1] = id
	if not ticket then return end
	for pool in pools(ticket.put) do redis.call('ZREM', pool_key(ticket.level, pool), id) end
end

-- drop removes a ticket that fetch refused; one that is still QUEUED has expired.
local expired = 0
local function drop(id, over, ticket)
	leave(id, ticket)
	if not over then return end
	expired = expired + 1
	if ticket then note(ticket, 'EXPIRED') end
end

-- settle removes the tickets of leave from the queue: together, which is twice as fast.
local function settle()
	for first = 1, #left, 500 do
		local ids = { unpack(left, first, math.min(first + 499, #left)) }
		redis.call('ZREM', queue, unpack(ids))
		redis.call('ZREM', due, unpack(ids))
	end
	left = {}
end

-- sweep ends up to `limit` expired tickets at the head of the queue, and returns whether
-- there may be more.
local function sweep(limit)
	local ids = redis.call('ZRANGE', queue, 0, limit - 1)
	for _, id in ipairs(ids) do
		local live, over, ticket = fetch(id)
		if live then return false end
		drop(id, over, ticket)
	end
	return #ids == limit
end

-- occupied returns whether a pool has members, asking Redis once.
local known = {}
local function occupied(key)
	if known[key] == nil then known[key] = redis.call('EXISTS', key) == 1 end
	return known[key]
end

-- nearest reads this many members of a pool at once: the ticket itself may be among
-- them, and one expired ticket. It repeats, up to this many times, while it removes
-- expired ones.
local nearest_ids, nearest_tries = 3, 8

-- nearest returns the first member of a pool, in the order of ZRANGE's arguments, that
-- the ticket may be matched with. With `clean` it removes expired tickets; unsure means
-- that it met too many of them to know.
local function nearest(ticket, key, clean, ...)
	for _ = 1, nearest_tries do
		local removed = false
		for _, id in ipairs(redis.call('ZRANGE', key, ...)) do
			if id ~= ticket.id then
				local other, over, stale = fetch(id)
				if other and other.user ~= ticket.user then return other end
				if not other and clean then
					drop(id, over, stale)
					redis.call('ZREM', key, id) -- the pools of a vanished ticket are unknown
					removed = true
				end
			end
		end
		if not removed then return nil end
	end
	return nil, true
end

-- below is nearest for lower skills. Of equal skills REV returns the youngest first, so
-- the first query only finds the skill, and the second the ticket that joined first.
local function below(ticket, key, clean, width)
	local other, unsure = nearest(ticket, key, clean, ticket.score, ticket.score - width, 'BYSCORE', 'REV', 'LIMIT', 0, nearest_ids)
	if not other then return nil, unsure end
	local first, doubt = nearest(ticket, key, clean, other.score, other.score, 'BYSCORE', 'LIMIT', 0, nearest_ids)
	return first or not doubt and other or nil, doubt
end

-- partner returns the ticket to match with: one that agrees and whose skill is within
-- the wider of the two windows. It prefers the widest window, and then the longer-waiting
-- of the nearest on both sides; earlier passes paired the rest, so few candidates remain.
-- Of equal skills on one side the one that joined first is the nearest. unsure means that
-- expired tickets may hide a better one: then none is chosen.
local function partner(ticket, own_level, clean)
	for level = top, 0, -1 do
		local best, unsure
		local function offer(other, doubt)
			unsure = unsure or doubt
			if other and (not best or other.id < best.id) then best = other end
		end
		for pool in pools(ticket.ask) do
			local key = pool_key(level, pool)
			if not occupied(key) then
				-- empty
			elseif ranked then
				local width = windows[math.max(level, own_level) + 1]
				offer(nearest(ticket, key, clean, ticket.score, ticket.score + width, 'BYSCORE', 'LIMIT', 0, nearest_ids))
				offer(below(ticket, key, clean, width))
			else
				offer(nearest(ticket, key, clean, 0, nearest_ids - 1))
			end
		end
		if unsure then return nil, true end
		if best then return best end
	end
end

-- The result of a pass: the fields of an entry, the ids with both created_at for the
-- caller, and the waiting times.
local entry, made, waits = {}, {}, {}

-- next_ids returns the match id and the event id of the next match, from ARGV[5..].
local function next_ids() return ARGV[5 + 2 * #made], ARGV[6 + 2 * #made] end

-- pair makes a match of two tickets, of which a has waited longer. entryLines in
-- events.go documents the lines of a match.
local function pair(a, b)
	local match_id, event_id = next_ids()
	local match = 'MATCHED ' .. match_id .. ' ' .. now_text .. ' '
	note(a, match .. b.user)
	note(b, match .. a.user)
	local n = #entry
	entry[n + 1] = match_id
	entry[n + 2] = table.concat({ event_id, now_text, a.trace .. ' ' .. b.trace, a.id, a.user, b.id, b.user }, '\n')
	leave(a.id, a)
	leave(b.id, b)
	made[#made + 1] = { match_id, a.created, b.created }
	waits[n + 1], waits[n + 2] = now - a.created, now - b.created
end

-- pass runs one pass and returns the queue's depth, the created_at of its oldest ticket,
-- the time, the number of expired tickets, whether there is more to do, and for each
-- match its id and both created_at. run makes the matches, unless backlog matches wait
-- to be announced, and returns whether there is more.
local function pass(backlog, sweeping, run)
	local paused = redis.call('XLEN', events) >= backlog
	local wait = tonumber(redis.call('HGET', stats, 'wait_ms') or nil)
	redis.call('ZCARD', queue)
	redis.call('ZCARD', due)
	local ok, more = true, false
	if paused then more = sweep(sweeping) else ok, more = pcall(run) end
	-- Even if run broke off: its matches are made.
	if #entry > 0 then redis.call('XADD', events, '*', unpack(entry)) end
	settle()
	-- For readers: the time of the last pass, and the average waiting time of matched
	-- tickets, in which about the latest 20 count most.
	for _, ms in ipairs(waits) do wait = wait and wait + (ms - wait) * 0.05 or ms end
	if #waits > 0 then
		redis.call('HSET', stats, 'passed_at', now, 'matched_at', now, 'wait_ms', math.floor(wait))
	else
		redis.call('HSET', stats, 'passed_at', now)
	end
	if not ok then error(more) end
	local oldest = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
	return { redis.call('ZCARD', queue), oldest[2] and tonumber(oldest[2]) or now, now, expired, more and 1 or 0, made }
end
