package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/session"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestCreateLoadDelete(t *testing.T) {
	t.Parallel()
	f := setup(t)
	want, before := sample(), time.Now()
	cookie := f.create(want)
	if other := f.create(want); other == cookie {
		t.Error("two sessions have the same cookie")
	}
	got := f.load(cookie)
	if got.CreatedAt.Before(before.Add(-time.Second)) || got.CreatedAt.After(time.Now()) {
		t.Errorf("created at %s", got.CreatedAt)
	}
	want.CreatedAt = got.CreatedAt
	if !equal(got, want) {
		t.Errorf("loaded %+v, want %+v", got, want)
	}
	if was, err := f.store.Delete(f.ctx, cookie); err != nil || !equal(was, want) {
		t.Errorf("deleted %+v: %v", was, err)
	}
	f.gone(cookie)
	if _, err := f.store.Delete(f.ctx, cookie); !errors.Is(err, session.ErrNone) {
		t.Errorf("deleted twice: %v", err)
	}
	// The other session stays: it alone is in the indexes, and is ended below.
	for _, key := range f.keys() {
		if strings.HasPrefix(key, "session:s") && f.client.ZCard(f.ctx, key).Val() != 1 {
			t.Errorf("%s lists %v, want one session", key, f.client.ZRange(f.ctx, key, 0, -1).Val())
		}
	}
	if n, err := f.store.EndSubject(f.ctx, issuer, subject); n != 1 || err != nil {
		t.Errorf("%d sessions ended, want 1: %v", n, err)
	}
}

// The store sets CreatedAt: otherwise the caller could choose the absolute limit.
func TestCreateDates(t *testing.T) {
	t.Parallel()
	f := setup(t)
	given := sample()
	given.CreatedAt = time.Now().Add(24 * time.Hour)
	if got := f.load(f.create(given)); time.Since(got.CreatedAt).Abs() > time.Minute {
		t.Errorf("created at %s", got.CreatedAt)
	}
}

func TestMalformedCookies(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(sample())
	// The last of 43 characters has two unused bits: other spellings of the same bytes
	// must not open the session.
	last := strings.IndexByte(base64URL, cookie[42])
	other := cookie[:42] + string(base64URL[last^1])
	for _, bad := range []string{
		"", "x", cookie[:42], cookie + "A", cookie + "=", "=" + cookie, cookie[:42] + "=", cookie[:41] + "\r\n", cookie[:20] + "\n" + cookie[20:], cookie[:20] + "\n" + cookie[21:],
		" " + cookie, cookie + " ", cookie[:10] + "+/" + cookie[12:], cookie[:10] + "é" + cookie[12:], strings.Repeat("A", 43), strings.Repeat("\n", 43), strings.Repeat("A", 1<<16), key(cookie), other,
	} {
		f.gone(bad)
		if _, err := f.store.Delete(f.ctx, bad); !errors.Is(err, session.ErrNone) {
			t.Errorf("Delete %.50q: %v", bad, err)
		}
		if _, err := f.store.Renewed(f.ctx, bad, due(), nil); !errors.Is(err, session.ErrNone) {
			t.Errorf("Renewed %.50q: %v", bad, err)
		}
	}
	f.load(cookie)
}

const base64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

func TestIdleLimit(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(sample())
	if ttl := f.ttl(key(cookie)); ttl > limits.Idle || ttl < limits.Idle-time.Minute {
		t.Errorf("a new session lives for %s, want %s", ttl, limits.Idle)
	}
	// With more than 90% of the idle limit left, Load does not write.
	f.expire(key(cookie), 95*limits.Idle/100)
	f.load(cookie)
	if ttl := f.ttl(key(cookie)); ttl > 95*limits.Idle/100 {
		t.Errorf("put off to %s with 95%% left", ttl)
	}
	f.expire(key(cookie), 85*limits.Idle/100)
	f.load(cookie)
	if ttl := f.ttl(key(cookie)); ttl > limits.Idle || ttl < 95*limits.Idle/100 {
		t.Errorf("put off to %s with 85%% left", ttl)
	}
	f.expire(key(cookie), time.Millisecond)
	kit.Eventually(t, "the session expires", func() bool { return f.client.Exists(f.ctx, key(cookie)).Val() == 0 })
	f.gone(cookie)
}

func TestAbsoluteLimit(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(sample())
	f.expire(key(cookie), time.Minute)
	shorter := f.with(session.Limits{Idle: limits.Idle, Absolute: 5 * time.Minute})
	for range 2 {
		if _, err := shorter.Load(f.ctx, cookie); err != nil {
			t.Fatal(err)
		}
		if ttl := f.ttl(key(cookie)); ttl > 5*time.Minute || ttl < 4*time.Minute {
			t.Errorf("the session lives for %s, want the absolute limit of 5m", ttl)
		}
	}
	// Beyond the absolute limit the session is gone, though Redis still has it.
	over := f.with(session.Limits{Idle: limits.Idle, Absolute: time.Nanosecond})
	if _, err := over.Load(f.ctx, cookie); !errors.Is(err, session.ErrNone) {
		t.Errorf("loaded: %v", err)
	}
	if _, err := over.Renewed(f.ctx, cookie, due(), nil); !errors.Is(err, session.ErrNone) {
		t.Errorf("renewed: %v", err)
	}
	if f.load(cookie).UserID == "" {
		t.Error("the session was deleted from Redis")
	}
	// An absolute limit below the idle limit holds from the start.
	short := f.with(session.Limits{Idle: time.Hour, Absolute: time.Second})
	brief, err := short.Create(f.ctx, sample())
	if err != nil {
		t.Fatal(err)
	}
	if ttl := f.ttl(key(brief)); ttl > time.Second || ttl < 0 {
		t.Errorf("the session lives for %s, want the absolute limit of 1s", ttl)
	}
}

func TestLimitsAreNeeded(t *testing.T) {
	t.Parallel()
	for _, l := range []session.Limits{{}, {Idle: time.Hour}, {Absolute: time.Hour}, {Idle: -1, Absolute: time.Hour}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("NewStore accepted %+v", l)
				}
			}()
			session.NewStore(nil, l)
		}()
	}
}

// Load of a session that needs no change is one round trip, and writes nothing. The second
// one reads no more than the nonce.
func TestLoadIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(sample())
	var w watch
	store := f.with(limits, &w)
	for range 2 {
		if _, err := store.Load(f.ctx, cookie); err != nil {
			t.Fatal(err)
		}
	}
	var sent []string
	for _, command := range w.commands() {
		if command[1] == key(cookie) {
			sent = append(sent, fmt.Sprint(append(command[:1:1], command[2:]...)...))
		}
	}
	if got, want := strings.Join(sent, ", "), "getrange0 -1, pttl, getrange0 11, pttl"; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
}

// A session that changes or ends in another process does so here with the next request.
func TestLoadSeesOtherProcesses(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie, other := f.create(due()), f.with(limits)
	before := f.load(cookie)
	if _, err := other.Renewed(f.ctx, cookie, before, func(_ context.Context, s session.Session) (session.Session, error) {
		s.Roles, s.RenewAt = []string{"player"}, time.Now().Add(time.Minute).UTC()
		return s, nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := f.load(cookie); !slices.Equal(got.Roles, []string{"player"}) || !got.RenewAt.After(before.RenewAt) {
		t.Errorf("after a renewal by another process the session is %+v", got)
	}
	if _, err := other.Delete(f.ctx, cookie); err != nil {
		t.Fatal(err)
	}
	f.gone(cookie)
}

// Those who watch a session hear of its end, and of no other's, also when Redis was away
// in the meantime. They look together, and only while there is a session to look for.
func TestWatch(t *testing.T) {
	t.Parallel()
	var looks watch
	dir := t.TempDir()
	f := &fixture{t: t, ctx: t.Context(), server: kit.StartRedis(t, dir)}
	f.client = f.connect()
	f.store = f.with(limits, &looks)
	asked := func() (n int) {
		for _, command := range looks.commands() {
			if command[0] == "exists" && strings.HasPrefix(fmt.Sprint(command[1]), "session:{") {
				n++
			}
		}
		return n
	}
	watched := func(cookie string) (ended chan struct{}, stop func()) {
		ended = make(chan struct{}, 100)
		return ended, f.store.Watch(cookie, func() { ended <- struct{}{} })
	}
	short, long := sample(), sample()
	long.SID = "sid-2"
	one, other := f.create(short), f.create(long)
	before := f.ttl(key(one))
	first, stopFirst := watched(one)
	second, stopSecond := watched(one)
	third, stopThird := watched(other)
	stopSecond()
	kit.Eventually(t, "both sessions were looked for", func() bool { return asked() >= 4 })
	if f.ttl(key(one)) > before {
		t.Error("Watch put off the idle limit")
	}
	if err := f.server.Stop(); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "looked for in vain", func() bool { n := asked(); kit.Pause(time.Second); return asked() > n })
	if len(first)+len(third) > 0 {
		t.Error("a session ended because Redis is away")
	}
	f.server = kit.StartRedis(t, dir)
	f.client = f.connect()
	kit.Eventually(t, "the session ends", func() bool {
		_, err := f.store.EndSID(f.ctx, issuer, sid)
		return err == nil
	})
	kit.Eventually(t, "the end is heard of", func() bool { return len(first) > 0 })
	if len(second)+len(third) > 0 {
		t.Error("an end is heard of after stop, or of another session")
	}
	stopFirst()
	stopThird()
	kit.Eventually(t, "nobody looks any more", func() bool { n := asked(); kit.Pause(time.Second); return asked() == n })
	kit.Eventually(t, "somebody looks again", func() bool {
		ended, stop := watched(one)
		defer stop()
		return kit.Soon(func() bool { return len(ended) > 0 })
	})
	ended, _ := watched("no cookie")
	if len(ended) != 1 {
		t.Error("what is no cookie has a session")
	}
}
