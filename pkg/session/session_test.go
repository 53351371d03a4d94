package session_test

import (
	"errors"
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

// Load of a session that needs no change is one round trip, and writes nothing.
func TestLoadIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(sample())
	var w watch
	store := f.with(limits, &w)
	if _, err := store.Load(f.ctx, cookie); err != nil {
		t.Fatal(err)
	}
	var names []any
	for _, command := range w.commands() {
		if command[0] == "get" || command[0] == "pttl" || command[0] == "pexpire" {
			names = append(names, command[0])
		}
	}
	if len(names) != 2 || names[0] != "get" || names[1] != "pttl" {
		t.Errorf("sent %v, want get and pttl", names)
	}
}

func TestAlive(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(sample())
	before := f.ttl(key(cookie))
	if alive, err := f.store.Alive(f.ctx, cookie); !alive || err != nil {
		t.Errorf("an open session is alive: %t, %v; want true", alive, err)
	}
	if f.ttl(key(cookie)) > before {
		t.Error("Alive put off the idle limit")
	}
	if _, err := f.store.EndSID(f.ctx, issuer, sid); err != nil {
		t.Fatal(err)
	}
	for _, ended := range []string{cookie, "", "no cookie"} {
		if alive, err := f.store.Alive(f.ctx, ended); alive || err != nil {
			t.Errorf("%q is alive: %t, %v; want false", ended, alive, err)
		}
	}
}
