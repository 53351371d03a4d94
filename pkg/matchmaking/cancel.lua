-- Takes a ticket out of its queue, if it still waits there.
--
-- KEYS[5] string  mm:ticket:{mode}:<id>
-- ARGV[4] string  ticket id
-- ARGV[5] string  user_id of who asks
--
-- Returns {'GONE'} where this user has no such ticket, {'CANCELLED'} where this call
-- cancelled it, and otherwise {'OVER'}: nothing is changed.

if redis.call('HGET', KEYS[5], 'user_id') ~= ARGV[5] then return { 'GONE' } end
local ticket = load(ARGV[4])
if not ticket then return { 'OVER' } end
redis.call('ZCARD', queue)
redis.call('ZCARD', due)
for pool in pools(ticket.put) do redis.call('ZCARD', pool_key(ticket.level, pool)) end
redis.call('HSET', KEYS[5], 'status', 'CANCELLED')
leave(ticket.id, ticket)
settle()
return { 'CANCELLED' }
