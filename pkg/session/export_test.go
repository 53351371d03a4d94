package session

// Keys are where the session of a cookie and the lock on its renewal are kept,
// for tests that change Redis behind the store's back.
func Keys(cookie string) (session, lock string) {
	p, ok := find(cookie)
	if !ok {
		panic("not a cookie: " + cookie)
	}
	return p.key, lockKey(p.id)
}
