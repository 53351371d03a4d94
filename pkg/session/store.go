package session

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
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

// Load returns the session of a cookie without its tokens, or ErrNone, and extends the
// idle limit when less than 90% of it is left. Usually it takes one round trip.
func (s *Store) Load(ctx context.Context, cookie string) (Session, error) {
	secret, ok := parseSecret(cookie)
	if !ok {
		return Session{}, ErrNone
	}
	hash := sha256.Sum256(secret)
	known, ok := s.opened.Get(hash, time.Now())
	if ok {
		nonce, ttl, err := s.look(ctx, known.key, nonceBytes)
		if err != nil {
			return Session{}, err
		}
		if nonce == known.nonce {
			return s.used(ctx, known, ttl)
		}
	}
	p := placeOf(secret)
	sealed, ttl, err := s.look(ctx, p.key, 0)
	if err != nil {
		return Session{}, err
	}
	known = opened{key: p.key}
	if !p.open([]byte(sealed), &known.session) {
		return Session{}, ErrNone
	}
	known.nonce = strings.Clone(sealed[:nonceBytes])
	known.session.IDToken, known.session.RefreshToken = "", ""
	s.opened.Put(hash, known, time.Now().Add(keepOpened))
	return s.used(ctx, known, ttl)
}

// look returns the first bytes of a stored session, 0 for all, and how long it lives.
func (s *Store) look(ctx context.Context, key string, first int64) (sealed string, ttl time.Duration, err error) {
	pipe := s.client.Pipeline()
	found, lives := pipe.GetRange(ctx, key, 0, first-1), pipe.PTTL(ctx, key)
	if err := execute(ctx, pipe); err != nil {
		return "", 0, unreachable("load a session", err)
	}
	return found.Val(), lives.Val(), nil
}

// used returns a session that lives for ttl unless it is used now.
func (s *Store) used(ctx context.Context, known opened, ttl time.Duration) (Session, error) {
	remaining := s.remaining(known.session)
	if remaining <= 0 {
		return Session{}, ErrNone
	}
	if fresh := min(s.limits.Idle, remaining); ttl < fresh-s.limits.Idle/10 {
		// If that fails, the next request extends it: no reason to refuse this one.
		_ = s.client.PExpire(ctx, known.key, fresh).Err()
	}
	return known.session, nil
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
