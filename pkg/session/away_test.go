package session_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/session"
	"github.com/miniserversystem/miniserver/test/kit"
)

// impatient returns a client with short timeouts.
func (f *fixture) impatient() redis.UniversalClient {
	f.t.Helper()
	options, err := redis.ParseURL(f.server.URL())
	if err != nil {
		f.t.Fatal(err)
	}
	options.ContextTimeoutEnabled = true
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = 200*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
	options.DialerRetries, options.MaxRetries = 1, 1
	client := redis.NewClient(options)
	f.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Without Redis every call fails soon with Unavailable. When Redis is back, so are the
// sessions.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	f := &fixture{t: t, ctx: t.Context()}
	dir := t.TempDir()
	f.server = kit.StartRedis(t, dir)
	f.client = f.impatient()
	f.store = session.NewStore(f.client, limits)
	cookie := f.create(due())
	stored := f.load(cookie)
	state, secret := f.begin(session.Login{Nonce: "nonce"})

	stop := func() {
		if err := f.server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	for name, call := range map[string]func() error{
		"Create":     func() error { _, err := f.store.Create(f.ctx, sample()); return err },
		"Load":       func() error { _, err := f.store.Load(f.ctx, cookie); return err },
		"Delete":     func() error { _, err := f.store.Delete(f.ctx, cookie); return err },
		"Renewed":    func() error { _, err := f.store.Renewed(f.ctx, cookie, stored, never(t)); return err },
		"EndSID":     func() error { _, err := f.store.EndSID(f.ctx, issuer, sid); return err },
		"EndSubject": func() error { _, err := f.store.EndSubject(f.ctx, issuer, subject); return err },
		"Once":       func() error { return f.store.Once(f.ctx, "jti", time.Minute, func() error { return nil }) },
		"BeginLogin": func() error { _, _, err := f.store.BeginLogin(f.ctx, session.Login{}); return err },
		"TakeLogin":  func() error { _, err := f.store.TakeLogin(f.ctx, state, secret); return err },
	} {
		began := time.Now()
		err := call()
		var unavailable *fault.Error
		if !errors.As(err, &unavailable) || unavailable.Kind != fault.Unavailable || unavailable.Code != "unavailable" || unavailable.RetryAfter <= 0 {
			t.Errorf("%s: %v, want Unavailable and a time to retry after", name, err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s took %s, want 2s at most", name, took)
		}
	}

	f.server = kit.StartRedis(t, dir)
	kit.Eventually(t, "Redis is back", func() bool { return f.client.Ping(f.ctx).Err() == nil })
	if got := f.load(cookie); !equal(got, stored) {
		t.Errorf("after the restart the session is %+v, want %+v", got, stored)
	}
	if _, err := f.store.TakeLogin(f.ctx, state, secret); err != nil {
		t.Error(err)
	}
	// Redis stops while a renewal is in progress.
	began := time.Now()
	_, err := f.store.Renewed(f.ctx, cookie, stored, func(ctx context.Context, s session.Session) (session.Session, error) {
		stop()
		began = time.Now()
		return fresh(ctx, s)
	})
	if took := time.Since(began); fault.Of(err) != fault.Unavailable || took > 2*time.Second {
		t.Errorf("the renewal ended with %v after %s, want Unavailable within 2s", err, took)
	}
	// The issuer takes the old tokens no more: the next renewal stores what that one made.
	f.server = kit.StartRedis(t, dir)
	kit.Eventually(t, "Redis is back", func() bool { return f.client.Ping(f.ctx).Err() == nil })
	kit.Within(t, 4*session.RenewTimeout, "the renewed session is stored", func() bool { // once the lock of the first has expired
		got, err := f.store.Renewed(f.ctx, cookie, f.load(cookie), never(t))
		kit.Must(t, err)
		return got.RefreshToken == "refresh-token-2" && f.load(cookie).RenewAt.Equal(got.RenewAt)
	})
}

// Redis is full: it answers, but refuses writes.
func TestRedisIsFull(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(sample())
	if err := f.client.ConfigSet(f.ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.Create(f.ctx, sample()); fault.Of(err) != fault.Unavailable {
		t.Errorf("Create: %v, want Unavailable", err)
	}
	f.load(cookie)
}

// Load returns a session that it has read even if it cannot put off the idle limit.
func TestLoadWithoutPuttingOff(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(sample())
	f.expire(key(cookie), time.Minute)
	stopped := false
	store := f.with(limits, onFirst("pexpire", func() {
		stopped = true
		if err := f.server.Stop(); err != nil {
			t.Error(err)
		}
	}))
	if _, err := store.Load(f.ctx, cookie); err != nil || !stopped {
		t.Errorf("Load: %v, stopped %t; want the session, and true", err, stopped)
	}
}
