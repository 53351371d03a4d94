-- Puts a ticket into a queue, or says why not.
--
-- KEYS[5] string  mm:ticket:{mode}:<id>              the new ticket
-- KEYS[6] string  mm:idemp:{mode}:<user_id>:<key>    what this key was used for
-- KEYS[7] string  mm:active:{mode}:<user_id>         id of the user's latest ticket
-- ARGV[4] string  ticket id
-- ARGV[5] string  user_id
-- ARGV[6] string  attributes (JSON)
-- ARGV[7] string  fingerprint of the request
-- ARGV[8] int     how many ms the ticket waits
-- ARGV[9] int     how many ms it can be read after that
-- ARGV[10] int    how many tickets the queue holds at most
-- ARGV[11] string the pools that it is put in, separated by tabs
-- ARGV[12] string the pools in which it asks for a partner
-- ARGV[13] string skill; empty where it does not count
-- ARGV[14] string traceparent
--
-- Returns {'JOINED' or 'REPLAYED', ticket id, expires_at}, {'REUSED'} for a key
-- of another request, {'WAITING', ticket id} for a user who waits already, or
-- {'FULL'}. Running it twice with the same ticket id joins once.

local id, user, fingerprint, put = ARGV[4], ARGV[5], ARGV[7], ARGV[11]

local used = redis.call('GET', KEYS[6])
if used then
	local of, expires, first = string.match(used, '^(%S+) (%S+) (%S+)$')
	if of ~= fingerprint then return { 'REUSED' } end
	return { first == id and 'JOINED' or 'REPLAYED', first, tonumber(expires) }
end
local latest = redis.call('GET', KEYS[7])
if latest and load(latest) then return { 'WAITING', latest } end
if redis.call('ZCARD', queue) >= tonumber(ARGV[10]) then return { 'FULL' } end
redis.call('ZCARD', due)
for pool in pools(put) do redis.call('ZCARD', pool_key(0, pool)) end

local expires = now + ARGV[8]
local kept = ARGV[8] + ARGV[9]
local score = ranked and ARGV[13] or now
redis.call('HSET', KEYS[5], 'user_id', user, 'mode', mode, 'status', 'QUEUED', 'created_at', now, 'expires_at', expires,
	'attributes', ARGV[6], 'level', 0, 'card', card(user, now, expires, ARGV[14], score, put, ARGV[12]))
redis.call('PEXPIRE', KEYS[5], kept)
redis.call('SET', KEYS[6], fingerprint .. ' ' .. expires .. ' ' .. id, 'PX', kept)
redis.call('SET', KEYS[7], id, 'PX', kept)
redis.call('ZADD', queue, now, id)
for pool in pools(put) do
	local key = pool_key(0, pool)
	redis.call('ZADD', key, score, id)
	-- Values come from callers: a pool that nobody joins any more must not stay.
	keep(key, kept)
end
if put ~= '' then redis.call('ZADD', due, now, id) end
return { 'JOINED', id, expires }
