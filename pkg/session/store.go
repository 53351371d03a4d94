package session

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Create stores a session, created now, and returns a new cookie value that opens it. The
// error is ErrNone when the issuer has already ended this sign-in: EndSID of its SID
// within the last minute, or a concurrent EndSID or EndSubject.
func (s *Store) Create(ctx context.Context, session Session) (cookie string, err error) {
	session.CreatedAt = time.Now().UTC()
	secret, cookie := newSecret()
	p := placeOf(secret)
	sealed, err := p.seal(session)
	if err != nil {
		return "", err
	}
	// This order leaves no gap for a sign-out: one that reads the indexes afterwards
	// finds the session there, one that read them before has left its tombstone, and one
	// in between removes it from the index, which is checked last.
	if err := s.index(ctx, session, p.id); err != nil {
		return "", unreachable("index a session", err)
	}
	if err := s.client.Set(ctx, p.key, sealed, min(s.limits.Idle, s.limits.Absolute)).Err(); err != nil {
		return "", unreachable("store a session", err)
	}
	ended, err := s.signedOut(ctx, session, p.id)
	if err != nil {
		return "", unreachable("look for a sign-out", err)
	}
	if ended {
		// A failure does no harm: no browser has the cookie.
		_ = s.client.Del(ctx, p.key).Err()
		s.unindex(ctx, session, p.id)
		return "", ErrNone
	}
	return cookie, nil
}

// Load returns the session of a cookie, or ErrNone, and extends the idle limit when less
// than 90% of it is left. Usually it takes one round trip.
func (s *Store) Load(ctx context.Context, cookie string) (Session, error) {
	p, ok := find(cookie)
	if !ok {
		return Session{}, ErrNone
	}
	pipe := s.client.Pipeline()
	sealed, ttl := pipe.Get(ctx, p.key), pipe.PTTL(ctx, p.key)
	if err := execute(ctx, pipe); err != nil {
		return Session{}, unreachable("load a session", err)
	}
	var session Session
	if !p.open([]byte(sealed.Val()), &session) {
		return Session{}, ErrNone
	}
	remaining := s.remaining(session)
	if remaining <= 0 {
		return Session{}, ErrNone
	}
	if fresh := min(s.limits.Idle, remaining); ttl.Val() < fresh-s.limits.Idle/10 {
		// If that fails, the next request extends it: no reason to refuse this one.
		_ = s.client.PExpire(ctx, p.key, fresh).Err()
	}
	return session, nil
}

// Alive reports whether a loaded session still exists. It neither opens the session nor
// extends its idle limit.
func (s *Store) Alive(ctx context.Context, cookie string) (bool, error) {
	p, ok := find(cookie)
	if !ok {
		return false, nil
	}
	found, err := s.client.Exists(ctx, p.key).Result()
	if err != nil {
		return false, unreachable("look for a session", err)
	}
	return found > 0, nil
}

// read returns the stored session, opened and sealed, or ErrNone.
func (s *Store) read(ctx context.Context, p place) (session Session, sealed []byte, err error) {
	sealed, err = s.client.Get(ctx, p.key).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Session{}, nil, unreachable("read a session", err)
	}
	if !p.open(sealed, &session) || s.remaining(session) <= 0 {
		return Session{}, nil, ErrNone
	}
	return session, sealed, nil
}

// Delete ends the session of a cookie and returns it, or ErrNone.
func (s *Store) Delete(ctx context.Context, cookie string) (Session, error) {
	p, ok := find(cookie)
	if !ok {
		return Session{}, ErrNone
	}
	sealed, err := s.client.GetDel(ctx, p.key).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Session{}, unreachable("delete a session", err)
	}
	var session Session
	if !p.open(sealed, &session) {
		return Session{}, ErrNone
	}
	s.unindex(ctx, session, p.id)
	return session, nil
}
