-- Puts some of the matches of an entry at the end of the stream, as a new entry,
-- and removes the old one. If the entry is gone, another process did this, and nothing
-- happens.
--
-- KEYS[1] string  mm:events:{mode}
-- ARGV[1] string  consumer group
-- ARGV[2] string  id of the entry
-- ARGV[3..]       match id and the lines of the kept matches, in turn; may be none

if #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) == 0 then return 0 end
if #ARGV > 2 then redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3)) end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
return 1
