package session

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// addScript puts id ARGV[1], which lives for ARGV[2] ms at most, into an index.
// It removes expired ids, because the index of a user who signs in every day would grow
// for ever. The index lives as long as its last session.
var addScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1`)

func sidKey(issuer, sid string) string { return keyPrefix + "sid:{" + digest(issuer, sid) + "}" }

func subjectKey(issuer, subject string) string {
	return keyPrefix + "subject:{" + digest(issuer, subject) + "}"
}

// indexKeys are the indexes that list the session.
func indexKeys(session Session) []string {
	var keys []string
	if session.SID != "" {
		keys = append(keys, sidKey(session.Issuer, session.SID))
	}
	if session.Subject != "" {
		keys = append(keys, subjectKey(session.Issuer, session.Subject))
	}
	return keys
}

func (s *Store) index(ctx context.Context, session Session, id string) error {
	pipe := s.client.Pipeline()
	for _, key := range indexKeys(session) {
		addScript.Eval(ctx, pipe, []string{key}, id, s.limits.Absolute.Milliseconds())
	}
	return execute(ctx, pipe)
}

// unindex removes the session from its indexes. A failure does no harm: an entry without
// a session ends nothing, and expires.
func (s *Store) unindex(ctx context.Context, session Session, id string) {
	pipe := s.client.Pipeline()
	for _, key := range indexKeys(session) {
		pipe.ZRem(ctx, key, id)
	}
	_ = execute(ctx, pipe)
}

// signedOut reports whether a sign-out happened while the session was being stored.
func (s *Store) signedOut(ctx context.Context, session Session, id string) (bool, error) {
	pipe := s.client.Pipeline()
	ended := pipe.Exists(ctx, endedKey(session.Issuer, session.SID))
	var listed []*redis.FloatCmd
	for _, key := range indexKeys(session) {
		listed = append(listed, pipe.ZScore(ctx, key, id))
	}
	if err := execute(ctx, pipe); err != nil {
		return false, err
	}
	for _, score := range listed {
		if score.Err() != nil { // absent
			return true, nil
		}
	}
	return ended.Val() > 0, nil
}
