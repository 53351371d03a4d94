-- Takes a ticket out of its queue, if it still waits there.
--
-- KEYS[5] string  mm:ticket:{mode}:<id>
-- KEYS[6] string  mm:active:{mode}:<user_id>
-- ARGV[4] string  ticket id
-- ARGV[5] string  user_id of the caller
-- ARGV[6] int     how many ms a cancelled ticket can be read
--
-- Returns {'GONE'} if this user has no such ticket, {'CANCELLED'} if this call cancelled
-- it, and otherwise {'OVER'}: nothing is changed.

local text = redis.call('GET', KEYS[5])
if not text or ticket_of(ARGV[4], text).user ~= ARGV[5] then return { 'GONE' } end
local ticket = fetch(ARGV[4])
if not ticket then return { 'OVER' } end
redis.call('ZCARD', queue)
redis.call('ZCARD', due)
for pool in pools(ticket.put) do redis.call('ZCARD', pool_key(ticket.level, pool)) end
note(ticket, 'CANCELLED')
leave(ticket.id, ticket)
settle()
-- Repeated joins and cancels must not fill Redis.
local ending = { KEYS[5], idemp_key(ticket.user, ticket.key) }
if redis.pcall('GET', KEYS[6]) == ticket.id then ending[#ending + 1] = KEYS[6] end
for _, each in ipairs(ending) do redis.call('PEXPIRE', each, ARGV[6]) end
return { 'CANCELLED' }
