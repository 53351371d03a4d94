-- Deletes consumers of a mode's stream that belong to processes that are gone: each
-- process of announce has a name of its own. A consumer for which entries are pending
-- stays until another worker has claimed these, since they would be deleted with it.
--
-- KEYS[1] string  mm:events:{mode}
-- ARGV[1] string  consumer group
-- ARGV[2] int     for how many ms a consumer has not asked for anything
-- ARGV[3] int     how many are deleted at most
--
-- Returns how many were deleted.

local deleted = 0
-- Where there is no stream or no group yet, this is an error.
for _, pairs in ipairs(redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
	local consumer = {}
	for i = 1, #pairs, 2 do consumer[pairs[i]] = pairs[i + 1] end
	if deleted < tonumber(ARGV[3]) and consumer.pending == 0 and consumer.idle >= tonumber(ARGV[2]) then
		redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
		deleted = deleted + 1
	end
end
return deleted
