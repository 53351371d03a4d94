package session_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/session"
	"github.com/miniserversystem/miniserver/test/kit"
)

// A sign-out ends all sessions of its SID, or of its subject, and no others.
func TestEnd(t *testing.T) {
	t.Parallel()
	f := setup(t)
	signed := func(issuer, subject, sid string) string {
		s := sample()
		s.Issuer, s.Subject, s.SID = issuer, subject, sid
		return f.create(s)
	}
	one, two := signed(issuer, subject, sid), signed(issuer, subject, sid)
	otherSID, noSID := signed(issuer, subject, "sid-2"), signed(issuer, subject, "")
	otherSubject, otherIssuer := signed(issuer, "subject-2", "sid-3"), signed("https://other.example", subject, sid)

	for range 2 { // the issuer may send it again
		if n, err := f.store.EndSID(f.ctx, issuer, ""); n != 0 || err != nil {
			t.Errorf("EndSID of no SID: %d, %v", n, err)
		}
		if n, err := f.store.EndSubject(f.ctx, issuer, ""); n != 0 || err != nil {
			t.Errorf("EndSubject of no subject: %d, %v", n, err)
		}
	}
	for _, want := range []int{2, 0} {
		if n, err := f.store.EndSID(f.ctx, issuer, sid); n != want || err != nil {
			t.Errorf("EndSID: %d, want %d: %v", n, want, err)
		}
	}
	f.gone(one)
	f.gone(two)
	f.load(otherSID)
	for _, want := range []int{2, 0} {
		if n, err := f.store.EndSubject(f.ctx, issuer, subject); n != want || err != nil {
			t.Errorf("EndSubject: %d, want %d: %v", n, want, err)
		}
	}
	f.gone(otherSID)
	f.gone(noSID)
	f.load(otherSubject)
	f.load(otherIssuer)
	// A user may sign in again, with a new SID.
	f.load(signed(issuer, subject, "sid-4"))
	f.load(signed(issuer, subject, ""))
}

// EndSubject ends more sessions than fit into one round trip.
func TestEndMany(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const n = 1203
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for range n / 3 {
				if _, err := f.store.Create(f.ctx, sample()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if ended, err := f.store.EndSubject(f.ctx, issuer, subject); ended != n || err != nil {
		t.Errorf("%d sessions ended, want %d: %v", ended, n, err)
	}
}

// A sign-out also ends a sign-in that completes within the next minute.
func TestTombstone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if _, err := f.store.EndSID(f.ctx, issuer, sid); err != nil {
		t.Fatal(err)
	}
	if cookie, err := f.store.Create(f.ctx, sample()); !errors.Is(err, session.ErrNone) || cookie != "" {
		t.Fatalf("created %q: %v, want ErrNone", cookie, err)
	}
	keys := f.keys()
	if len(keys) != 1 || !strings.HasPrefix(keys[0], "session:ended:{") {
		t.Fatalf("Redis has %v, want only a tombstone", keys)
	}
	if ttl := f.ttl(keys[0]); ttl > time.Minute || ttl < 50*time.Second {
		t.Errorf("remembered for %s", ttl)
	}
	other := sample()
	other.SID = "sid-2"
	f.create(other)
	f.expire(keys[0], time.Millisecond)
	kit.Eventually(t, "the tombstone goes", func() bool { return f.client.Exists(f.ctx, keys[0]).Val() == 0 })
	f.load(f.create(sample()))
}

// A sign-out ends a sign-in at whichever moment it comes: Create returns ErrNone, or the
// cookie that it returned opens nothing.
func TestEndRacesCreate(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name string
		do   func(*fixture) (int, error)
	}{
		{"EndSID", func(f *fixture) (int, error) { return f.store.EndSID(f.ctx, issuer, sid) }},
		{"EndSubject", func(f *fixture) (int, error) { return f.store.EndSubject(f.ctx, issuer, subject) }},
	} {
		for name, before := range map[string]string{"indexed": "set", "stored": "exists"} {
			t.Run(end.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				f := setup(t)
				store := f.with(limits, onFirst(before, func() {
					if _, err := end.do(f); err != nil {
						t.Error(err)
					}
				}))
				cookie, err := store.Create(f.ctx, sample())
				if !errors.Is(err, session.ErrNone) || cookie != "" {
					t.Errorf("created %q: %v, want ErrNone", cookie, err)
				}
				for _, key := range f.keys() {
					if !strings.HasPrefix(key, "session:ended:") {
						t.Errorf("the refused sign-in left %s", key)
					}
				}
			})
		}
	}
}

// A sign-in is stored and completes in the middle of a sign-out: after the sign-out found
// no session of it, and before it emptied the index.
func TestCreateInsideEnd(t *testing.T) {
	t.Parallel()
	f := setup(t)
	indexed, store, created := make(chan struct{}), make(chan struct{}), make(chan string)
	go func() {
		creating := f.with(limits, onFirst("set", func() { close(indexed); <-store }))
		cookie, err := creating.Create(f.ctx, sample())
		if err != nil {
			t.Error(err)
		}
		created <- cookie
	}()
	<-indexed
	var cookie string
	ending := f.with(limits, onFirst("zrem", func() { close(store); cookie = <-created }))
	if n, err := ending.EndSubject(f.ctx, issuer, subject); n != 1 || err != nil {
		t.Errorf("%d sessions ended, want 1: %v", n, err)
	}
	f.gone(cookie)
}

// Indexes forget sessions whose time is over, and expire with their last session.
func TestIndexesStaySmall(t *testing.T) {
	t.Parallel()
	f := setup(t)
	short := f.with(session.Limits{Idle: time.Hour, Absolute: 500 * time.Millisecond})
	create := func() {
		t.Helper()
		if _, err := short.Create(f.ctx, sample()); err != nil {
			t.Fatal(err)
		}
	}
	create()
	var indexes []string
	for _, key := range f.keys() {
		if strings.HasPrefix(key, "session:s") {
			indexes = append(indexes, key)
			if ttl := f.ttl(key); ttl > 500*time.Millisecond || ttl < 0 {
				t.Errorf("%s lives for %s, want 500ms at most", key, ttl)
			}
		}
	}
	if len(indexes) != 2 {
		t.Fatalf("indexes: %v", indexes)
	}
	f.create(sample())
	create() // does not shorten the index of the longer session
	for _, index := range indexes {
		if ttl := f.ttl(index); ttl > limits.Absolute || ttl < limits.Absolute-time.Minute {
			t.Errorf("%s lives for %s, want about %s", index, ttl, limits.Absolute)
		}
		kit.Eventually(t, "the short sessions are over", func() bool {
			now := f.client.Time(f.ctx).Val().UnixMilli()
			return f.client.ZCount(f.ctx, index, fmt.Sprint(now), "+inf").Val() == 1
		})
	}
	f.create(sample())
	for _, index := range indexes {
		if n := f.client.ZCard(f.ctx, index).Val(); n != 2 {
			t.Errorf("%s lists %d sessions, want the 2 that are left", index, n)
		}
	}
}

func TestOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	other := f.with(limits)
	times := 0
	do := func() error { times++; return nil }
	for _, store := range []*session.Store{f.store, f.store, other} {
		if err := store.Once(f.ctx, "jti", time.Minute, do); err != nil {
			t.Error(err)
		}
	}
	if times != 1 {
		t.Errorf("done %d times, want 1", times)
	}
	if ttl := f.ttl(f.keys()[0]); ttl > time.Minute || ttl < 50*time.Second {
		t.Errorf("remembered for %s", ttl)
	}
	// A function that failed runs again.
	for range 2 {
		if err := f.store.Once(f.ctx, "failing", time.Minute, func() error { return errTest }); !errors.Is(err, errTest) {
			t.Error(err)
		}
	}
	if err := f.store.Once(f.ctx, "failing", time.Minute, do); err != nil || times != 2 {
		t.Errorf("after a failure: %v, done %d times in all, want 2", err, times)
	}
	for _, short := range []time.Duration{0, -time.Hour, time.Nanosecond} {
		before := times
		for range 2 {
			if err := f.store.Once(f.ctx, "short "+short.String(), short, do); err != nil {
				t.Error(err)
			}
		}
		if times != before+1 {
			t.Errorf("remembered for %s: done %d times, want 1", short, times-before)
		}
	}
	for _, key := range f.keys() {
		if f.ttl(key) <= 0 {
			t.Errorf("%s is remembered for ever", key)
		}
	}
}
