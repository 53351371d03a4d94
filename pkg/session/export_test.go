package session

import "context"

// Stored returns all that Redis has of a session, with its tokens.
func (s *Store) Stored(ctx context.Context, cookie string) (Session, error) {
	p, _ := find(cookie)
	session, _, err := s.read(ctx, p)
	return session, err
}

// Keys returns the Redis keys of a cookie's session and of the lock on its renewal, for
// tests that change Redis behind the store's back.
func Keys(cookie string) (session, lock string) {
	p, ok := find(cookie)
	if !ok {
		panic("not a cookie: " + cookie)
	}
	return p.key, lockKey(p.id)
}

// IsCookie reports whether text may open a session.
func IsCookie(text string) bool {
	_, ok := find(text)
	return ok
}
