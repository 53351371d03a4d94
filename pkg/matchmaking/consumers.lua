-- Deletes the consumers of processes that ended: each process of announce has its own
-- name. A consumer with pending entries stays until another worker has claimed them,
-- since they would be deleted with it.
--
-- KEYS[1] string  mm:events:{mode}
-- ARGV[1] string  consumer group
-- ARGV[2] int     idle time in ms after which a consumer is deleted
-- ARGV[3] int     most consumers to delete
--
-- Returns the number of deleted consumers.

local deleted = 0
-- An error while there is no stream or group yet.
for _, pairs in ipairs(redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
	local consumer = {}
	for i = 1, #pairs, 2 do consumer[pairs[i]] = pairs[i + 1] end
	if deleted < tonumber(ARGV[3]) and consumer.pending == 0 and consumer.idle >= tonumber(ARGV[2]) then
		redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
		deleted = deleted + 1
	end
end
return deleted
