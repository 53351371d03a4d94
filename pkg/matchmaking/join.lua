-- Puts a ticket into a queue, or returns why not.
--
-- KEYS[5] string  mm:idemp:{mode}:<user_id>:<key>    the key's request and ticket
-- KEYS[6] string  mm:active:{mode}:<user_id>         id of the user's latest ticket
-- ARGV[4] string  the random end of the ticket's id
-- ARGV[5] string  user_id
-- ARGV[6] string  attributes (JSON)
-- ARGV[7] string  fingerprint of the request
-- ARGV[8] int     time in ms that the ticket waits
-- ARGV[9] int     time in ms that it can be read after that
-- ARGV[10] int    most tickets that the queue holds
-- ARGV[11] string the pools that it is put into, separated by tabs
-- ARGV[12] string the pools in which it looks for a partner
-- ARGV[13] string skill; empty where skill does not count
-- ARGV[14] string traceparent
-- ARGV[15] string the caller's key, with which KEYS[5] ends
--
-- Returns {'JOINED' or 'REPLAYED', ticket id, expires_at}, {'REUSED'} for the key of
-- another request, {'WAITING', ticket id} if the user waits already, or {'FULL'}. Running it twice with the same random end joins once.

local random, user, fingerprint, put = ARGV[4], ARGV[5], ARGV[7], ARGV[11]

-- base32 writes a number in the alphabet of TypeIDs, in which strings sort as numbers.
local function base32(number, length)
	local bytes, byte = {}, string.byte
	for i = length, 1, -1 do
		local digit = number % 32
		bytes[i] = byte('0123456789abcdefghjkmnpqrstvwxyz', digit + 1)
		number = (number - digit) / 32
	end
	return string.char(unpack(bytes))
end

local used = redis.call('GET', KEYS[5])
if used then
	local of, expires, first = string.match(used, '^(%S+) (%S+) (%S+)$')
	if of ~= fingerprint then return { 'REUSED' } end
	return { string.sub(first, -#random) == random and 'JOINED' or 'REPLAYED', first, tonumber(expires) }
end
local latest = redis.call('GET', KEYS[6])
if latest and fetch(latest) then return { 'WAITING', latest } end
if redis.call('ZCARD', queue) >= tonumber(ARGV[10]) then return { 'FULL' } end
redis.call('ZCARD', due)
for pool in pools(put) do redis.call('ZCARD', pool_key(0, pool)) end

-- A UUIDv7 as a TypeID: 48 bits of time in ms, 4 bits of version, and here 11 bits of
-- the microseconds. Ids must sort by joining, whichever process asked, so all of it is
-- Redis' time.
local micros = time[2] % 1000
local id = mode .. '_' .. base32(now, 10) .. base32(7 * 2048 + math.floor(micros * 2048 / 1000), 3) .. random
local expires = now + ARGV[8]
local kept = ARGV[8] + ARGV[9]
local score = ranked and ARGV[13] or now
redis.call('SET', ticket_key(id), struct.pack(fields, now_text, string.format('%.0f', expires), user, ARGV[14], score, put, ARGV[12], ARGV[15], ARGV[6]), 'PX', kept)
redis.call('SET', KEYS[5], fingerprint .. ' ' .. expires .. ' ' .. id, 'PX', kept)
redis.call('SET', KEYS[6], id, 'PX', kept)
redis.call('ZADD', queue, now, id)
for pool in pools(put) do
	local key = pool_key(0, pool)
	redis.call('ZADD', key, score, id)
	-- Callers choose the values, so an abandoned pool must expire.
	keep(key, kept)
end
if put ~= '' then redis.call('ZADD', due, now, id) end
return { 'JOINED', id, expires }
