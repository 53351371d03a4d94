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

// fails is a renewal that returns nothing but err.
func fails(err error) renewal {
	return func(context.Context, session.Session) (session.Session, error) { return session.Session{}, err }
}

// never is a renewal that must not happen.
func never(t testing.TB) renewal {
	return func(_ context.Context, s session.Session) (session.Session, error) {
		t.Error("renewed")
		return s, nil
	}
}

// blocked is a renewal that tells when it is in progress and goes on when release is closed.
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
		t.Errorf("before its time: %+v, %v", got, err)
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
		t.Errorf("%+v, %v", got, err)
	}
	if ttl := f.ttl(key(cookie)); ttl < 4*time.Minute {
		t.Errorf("the session lives %s", ttl)
	}
	// Who comes with what was loaded before gets what is stored now.
	if late, err := f.store.Renewed(f.ctx, cookie, stored, never(t)); err != nil || !equal(late, got) {
		t.Errorf("late: %+v, %v", late, err)
	}
	if n := f.client.Exists(f.ctx, lock(cookie)).Val(); n != 0 {
		t.Error("the lock is held still")
	}
}

// The idle limit is Load's: renewing does not put it off.
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
		t.Errorf("the session lives %s", ttl)
	}
}

// The issuer refuses for good: nothing of the session is left, for anybody.
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
			t.Errorf("%v", err)
		}
	}
	f.gone(cookie)
	if keys := f.keys(); len(keys) != 0 {
		t.Errorf("left: %v", keys)
	}
}

// The issuer cannot be reached: the session goes on, and the next try waits.
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
		t.Errorf("again in %s", time.Until(at))
	}
	if !equal(got, f.load(cookie)) {
		t.Errorf("%+v is not what is stored", got)
	}
	want := stored
	want.RenewAt = got.RenewAt
	if !equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, s := range []session.Session{got, stored} {
		if again, err := f.store.Renewed(f.ctx, cookie, s, never(t)); err != nil || !equal(again, got) {
			t.Errorf("%+v, %v", again, err)
		}
	}
}

// The caller goes away: what the issuer gave, which it may give only once, is kept.
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

// Renewing changes neither whose session it is nor how long it may last.
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
	// A time that is over would make every request renew.
	if wait := time.Until(got.RenewAt); wait < session.RetryAfter-time.Second || wait > session.RetryAfter {
		t.Errorf("again in %s", wait)
	}
}

// A renewal that panics does not keep the others waiting.
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
		t.Errorf("%+v, %v", got, err)
	}
}
