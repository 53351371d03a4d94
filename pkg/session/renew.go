package session

import (
	"context"
	"crypto/rand"
	"errors"
	random "math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// RenewTimeout bounds one renewal, and how long others wait for it.
	RenewTimeout = 5 * time.Second
	// RetryAfter is how long a session continues unchanged after its issuer could not
	// be reached, so that not every request waits for the issuer.
	RetryAfter = 15 * time.Second

	// storeTimeout bounds a renewal's reads and writes in Redis.
	storeTimeout = time.Second
	// lockLifetime exceeds a renewal with its reads and writes.
	lockLifetime = RenewTimeout + 2*storeTimeout
	// pollEvery is the shortest wait between two checks of another caller's renewal; a
	// random time up to as much is added.
	pollEvery = 20 * time.Millisecond
)

// ErrRevoked is the error of renew when the issuer refuses for ever, so the session must
// end. It may be wrapped.
var ErrRevoked = errors.New("the issuer does not renew this session any more")

// replaceScript changes a session to ARGV[2], or deletes it if that is empty, but only
// while its nonce is ARGV[1].
var replaceScript = redis.NewScript(`
if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) ~= ARGV[1] then
	return 0
end
if ARGV[2] == '' then
	redis.call('DEL', KEYS[1])
else
	redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
end
return 1`)

// unlockScript deletes a lock that ARGV[1] still holds.
var unlockScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
	return redis.call('DEL', KEYS[1])
end
return 0`)

func lockKey(id string) string { return keyPrefix + "renewing:{" + id + "}" }

// Renewed returns session unchanged until its RenewAt. From then on it returns the result
// of renew: of all callers in all processes one calls renew, and the others wait and
// return the same. If that caller dies, another one takes over when its lock expires, a
// little after RenewTimeout.
//
// renew gets the stored session, and a context that outlives the caller's and ends after
// RenewTimeout; renew must end with it. It may change the client, roles, AuthTime, tokens
// and RenewAt, but not the owner and the time of creation. A RenewAt that is not in the
// future becomes RetryAfter from now. When renew returns
//   - ErrRevoked, the session ends and all callers get ErrNone;
//   - any other error, the session continues unchanged for RetryAfter, without an error.
//
// A sign-out in the meantime wins: the result is ErrNone. A caller that waits for
// RenewTimeout in vain gets the session unchanged.
func (s *Store) Renewed(ctx context.Context, cookie string, session Session, renew func(context.Context, Session) (Session, error)) (Session, error) {
	if !session.due() {
		return session, nil
	}
	p, ok := find(cookie)
	if !ok {
		return Session{}, ErrNone
	}
	owner := rand.Text()
	deadline := time.Now().Add(RenewTimeout)
	for {
		mine, err := s.claim(ctx, lockKey(p.id), owner, lockLifetime)
		if err != nil {
			return Session{}, err
		}
		if mine {
			return s.renewAlone(context.WithoutCancel(ctx), p, owner, renew)
		}
		select {
		case <-ctx.Done():
			return Session{}, unreachable("wait for a renewal", ctx.Err())
		case <-time.After(pollEvery + random.N(pollEvery)):
		}
		current, _, err := s.read(ctx, p)
		if err != nil || !current.due() || time.Now().After(deadline) {
			return current, err
		}
	}
}

func (session Session) due() bool { return !time.Now().Before(session.RenewAt) }

// renewAlone is Renewed for the holder of the lock.
func (s *Store) renewAlone(ctx context.Context, p place, owner string, renew func(context.Context, Session) (Session, error)) (Session, error) {
	defer s.unlock(ctx, p, owner)
	// Only a read under the lock sees the previous holder's result for certain.
	reading, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	current, sealed, err := s.read(reading, p)
	if err != nil || !current.due() {
		return current, err
	}
	nonce := string(sealed[:nonceBytes])
	replacement, renewed := s.unstored.Get(nonce, time.Now()) // empty for a session that must end
	if !renewed {
		renewing, cancel := context.WithTimeout(ctx, RenewTimeout)
		defer cancel()
		next, err := renew(renewing, current)
		if !errors.Is(err, ErrRevoked) {
			if replacement, err = p.seal(current.after(next, err)); err != nil {
				return Session{}, err
			}
		}
	}
	writing, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	// Replace only the session that was read: this neither restores a session that was
	// signed out meanwhile, nor overwrites a newer one that another process made after
	// this one's lock expired.
	replaced, err := replaceScript.Run(writing, s.client, []string{p.key}, nonce, replacement).Bool()
	var next Session
	switch {
	case err != nil:
		s.unstored.Put(nonce, replacement, time.Now().Add(keepUnstored))
		return Session{}, unreachable("store a renewed session", err)
	case !replaced:
		current, _, err = s.read(writing, p)
		return current, err
	case len(replacement) == 0:
		s.unindex(writing, current, p.id)
		return Session{}, ErrNone
	case !p.open(replacement, &next):
		return Session{}, ErrNone
	}
	return next, nil
}

// after returns the session that follows when renew returned next and err.
func (session Session) after(next Session, err error) Session {
	if err != nil {
		next = session
	}
	next.UserID, next.Issuer, next.Subject, next.SID, next.CreatedAt = session.UserID, session.Issuer, session.Subject, session.SID, session.CreatedAt
	if err != nil || next.due() {
		next.RenewAt = time.Now().Add(RetryAfter).UTC()
	}
	return next
}

// claim sets an absent key, and reports whether it holds owner now. SET returns the old
// value, because a cluster's client may repeat a command whose answer was lost: the second
// time it finds owner.
func (s *Store) claim(ctx context.Context, key, owner string, lifetime time.Duration) (bool, error) {
	found, err := s.client.SetArgs(ctx, key, owner, redis.SetArgs{Mode: "NX", Get: true, TTL: lifetime}).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return true, nil
	case err != nil:
		return false, unreachable("claim a key", err)
	}
	return found == owner, nil
}

// unlock lets others renew. If it fails, the lock expires.
func (s *Store) unlock(ctx context.Context, p place, owner string) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_ = unlockScript.Run(ctx, s.client, []string{lockKey(p.id)}, owner).Err()
}
