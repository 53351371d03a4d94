package session_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/session"
)

type renewal func(context.Context, session.Session) (session.Session, error)

// fresh is a renewal that succeeds.
func fresh(_ context.Context, s session.Session) (session.Session, error) {
	s.RefreshToken, s.IDToken, s.Roles = "refresh-token-2", "id-token-2", []string{"player"}
	s.RenewAt = time.Now().Add(time.Hour).UTC()
	return s, nil
}

// fails returns a renewal that returns nothing but err.
func fails(err error) renewal {
	return func(context.Context, session.Session) (session.Session, error) { return session.Session{}, err }
}

// never returns a renewal that fails the test if it runs.
func never(t testing.TB) renewal {
	return func(_ context.Context, s session.Session) (session.Session, error) {
		t.Error("the session was renewed")
		return s, nil
	}
}

// blocked returns a renewal that closes begun, waits until release is closed, and then
// runs then.
func blocked(then renewal) (renew renewal, begun, release chan struct{}) {
	begun, release = make(chan struct{}), make(chan struct{})
	return func(ctx context.Context, s session.Session) (session.Session, error) {
		close(begun)
		<-release
		return then(ctx, s)
	}, begun, release
}

func TestRenewed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(due())
	stored := f.load(cookie)
	early := stored
	early.RenewAt = time.Now().Add(time.Second)
	if got, err := f.store.Renewed(f.ctx, cookie, early, never(t)); err != nil || !equal(got, early) {
		t.Errorf("before RenewAt: got %+v, %v; want %+v", got, err, early)
	}
	f.expire(key(cookie), 5*time.Minute)
	got, err := f.store.Renewed(f.ctx, cookie, stored, func(ctx context.Context, s session.Session) (session.Session, error) {
		if !equal(s, stored) {
			t.Errorf("renew got %+v, want %+v", s, stored)
		}
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > session.RenewTimeout || time.Until(end) < session.RenewTimeout/2 {
			t.Errorf("renew may run until %s", end)
		}
		return fresh(ctx, s)
	})
	if err != nil || got.RefreshToken != "refresh-token-2" || !equal(got, f.load(cookie)) {
		t.Errorf("got %+v, %v; want renewed tokens, as stored", got, err)
	}
	if ttl := f.ttl(key(cookie)); ttl < 4*time.Minute {
		t.Errorf("the session lives for %s, want 4m at least", ttl)
	}
	// A caller that loaded the session before the renewal gets the renewed one.
	if late, err := f.store.Renewed(f.ctx, cookie, stored, never(t)); err != nil || !equal(late, got) {
		t.Errorf("a late caller got %+v, %v; want %+v", late, err, got)
	}
	if n := f.client.Exists(f.ctx, lock(cookie)).Val(); n != 0 {
		t.Error("the lock is held still")
	}
}

// Only Load puts off the idle limit, not Renewed.
func TestRenewedKeepsTheIdleLimit(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(due())
	stored := f.load(cookie)
	f.expire(key(cookie), time.Minute)
	if _, err := f.store.Renewed(f.ctx, cookie, stored, fresh); err != nil {
		t.Fatal(err)
	}
	if ttl := f.ttl(key(cookie)); ttl > time.Minute || ttl < 50*time.Second {
		t.Errorf("the session lives for %s, want 1m as before", ttl)
	}
}

// The issuer refuses the renewal for ever: nothing is left of the session, for any caller.
func TestRevoked(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(due())
	stored := f.load(cookie)
	renew, begun, release := blocked(fails(fmt.Errorf("invalid_grant: %w", session.ErrRevoked)))
	results := make(chan error, 2)
	go func() { _, err := f.store.Renewed(f.ctx, cookie, stored, renew); results <- err }()
	<-begun
	go func() { _, err := f.with(limits).Renewed(f.ctx, cookie, stored, never(t)); results <- err }()
	close(release)
	for range 2 {
		if err := <-results; !errors.Is(err, session.ErrNone) {
			t.Errorf("a caller got %v, want ErrNone", err)
		}
	}
	f.gone(cookie)
	if keys := f.keys(); len(keys) != 0 {
		t.Errorf("the session left %v", keys)
	}
}

// The issuer cannot be reached: the session stays as it is, and the next try waits.
func TestIssuerUnreachable(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(due())
	stored := f.load(cookie)
	before := time.Now()
	got, err := f.store.Renewed(f.ctx, cookie, stored, func(_ context.Context, s session.Session) (session.Session, error) {
		s.RefreshToken, s.Roles = "half a token", nil
		return s, errTest
	})
	if err != nil {
		t.Fatal(err)
	}
	if at := got.RenewAt; at.Before(before.Add(session.RetryAfter)) || at.After(time.Now().Add(session.RetryAfter)) {
		t.Errorf("the next try is in %s, want %s", time.Until(at), session.RetryAfter)
	}
	if !equal(got, f.load(cookie)) {
		t.Errorf("got %+v, which is not the stored session", got)
	}
	want := stored
	want.RenewAt = got.RenewAt
	if !equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, s := range []session.Session{got, stored} {
		if again, err := f.store.Renewed(f.ctx, cookie, s, never(t)); err != nil || !equal(again, got) {
			t.Errorf("the next caller got %+v, %v; want %+v", again, err, got)
		}
	}
}

// The caller goes away during a renewal: the new tokens, which the issuer may give only
// once, are stored.
func TestCallerGoesAway(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(due())
	stored := f.load(cookie)
	ctx, cancel := context.WithCancel(f.ctx)
	if _, err := f.store.Renewed(ctx, cookie, stored, func(renewing context.Context, s session.Session) (session.Session, error) {
		cancel()
		if err := renewing.Err(); err != nil {
			t.Error(err)
		}
		return fresh(renewing, s)
	}); err != nil {
		t.Error(err)
	}
	if got := f.load(cookie); got.RefreshToken != "refresh-token-2" {
		t.Errorf("stored is %+v", got)
	}
	if n := f.client.Exists(f.ctx, lock(cookie)).Val(); n != 0 {
		t.Error("the lock is held still")
	}
}

// A renewal changes neither the owner of a session nor its absolute limit.
func TestRenewedKeepsTheOwner(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(due())
	stored := f.load(cookie)
	got, err := f.store.Renewed(f.ctx, cookie, stored, func(context.Context, session.Session) (session.Session, error) {
		return session.Session{UserID: "u_other", Issuer: "other", Subject: "other", SID: "other", CreatedAt: time.Now().Add(time.Hour), Roles: []string{"player"}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := session.Session{UserID: stored.UserID, Issuer: stored.Issuer, Subject: stored.Subject, SID: stored.SID, CreatedAt: stored.CreatedAt, Roles: []string{"player"}, RenewAt: got.RenewAt}
	if !equal(got, want) || !equal(got, f.load(cookie)) {
		t.Errorf("%+v, want %+v", got, want)
	}
	// A RenewAt in the past would make every request renew.
	if wait := time.Until(got.RenewAt); wait < session.RetryAfter-time.Second || wait > session.RetryAfter {
		t.Errorf("the next renewal is in %s, want %s", wait, session.RetryAfter)
	}
}

// A renewal that panics releases the lock.
func TestPanickingRenewal(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(due())
	stored := f.load(cookie)
	func() {
		defer func() { _ = recover() }()
		_, _ = f.store.Renewed(f.ctx, cookie, stored, func(context.Context, session.Session) (session.Session, error) { panic(errTest) })
	}()
	if n := f.client.Exists(f.ctx, lock(cookie)).Val(); n != 0 {
		t.Error("the lock is held still")
	}
	if got, err := f.store.Renewed(f.ctx, cookie, stored, fresh); err != nil || got.RefreshToken != "refresh-token-2" {
		t.Errorf("the next caller got %+v, %v; want renewed tokens", got, err)
	}
}
