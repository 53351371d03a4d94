package issuer

import (
	"errors"
	"strconv"
	"testing"
	"time"
)

// clock is a time that a test moves.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func (c *clock) pass(d time.Duration) { c.Time = c.Add(d) }

func TestLoginExpires(t *testing.T) {
	t.Parallel()
	c := &clock{time.Unix(1_000_000, 0)}
	logins := newLoginStore(c.now)
	alice := newDirectory(nil).byName["alice"]

	logins.begin(&authRequest{id: "slow"})
	c.pass(authRequestLifetime)
	if err := logins.complete("slow", alice); !errors.Is(err, errNoAuthRequest) {
		t.Errorf("a sign-in that took too long: %v, want errNoAuthRequest", err)
	}

	logins.begin(&authRequest{id: "fast"})
	c.pass(authRequestLifetime - time.Second)
	if err := errors.Join(logins.complete("fast", alice), logins.issue("fast", "code")); err != nil {
		t.Fatal(err)
	}
	c.pass(codeLifetime)
	if _, err := logins.redeem("code"); !errors.Is(err, errNoCode) {
		t.Errorf("an old code: %v, want errNoCode", err)
	}
}

func TestSessionExpires(t *testing.T) {
	t.Parallel()
	c := &clock{time.Unix(1_000_000, 0)}
	sessions := newSessionStore(time.Minute, c.now)
	g := &grant{sessionID: "s", subject: AliceSubject, clientID: WebClientID}
	token := sessions.open(g)
	id, expires := sessions.grantAccess(g)
	if want := c.Add(time.Minute); !expires.Equal(want) {
		t.Errorf("expires %v, want %v", expires, want)
	}
	c.pass(time.Minute)
	if _, ok := sessions.accessByID(id); ok {
		t.Error("an expired access token is valid")
	}
	c.pass(sessionLifetime - 2*time.Minute)
	token, _, err := sessions.rotate(token)
	if err != nil {
		t.Fatal(err)
	}
	c.pass(time.Minute)
	if _, _, err := sessions.rotate(token); !errors.Is(err, errNoSession) {
		t.Errorf("a refresh prolonged the session: %v", err)
	}
}

func TestExpiringMapIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 10
	c := &clock{time.Unix(1_000_000, 0)}
	m := newExpiringMap[int](limit, c.now)
	for i := range 3 * limit {
		m.put(strconv.Itoa(i), i, c.Add(time.Duration(i+1)*time.Second))
	}
	if len(m.entries) != limit {
		t.Fatalf("%d entries, want as many as the limit", len(m.entries))
	}
	if _, ok := m.get("19"); ok {
		t.Error("an entry that expires early was kept")
	}
	if got, ok := m.get("29"); !ok || got != 29 {
		t.Error("the entry that expires last was dropped")
	}
	c.pass(time.Hour)
	m.put("new", 1, c.Add(time.Second))
	if len(m.entries) != 1 {
		t.Errorf("%d entries after all expired, want 1", len(m.entries))
	}
}
