package session_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/session"
)

// Of many callers in two processes one renews, and all get the renewed session.
func TestOneRenews(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(due())
	stored := f.load(cookie)
	// The renewal waits until every caller has asked for the lock.
	const callers = 64
	var renewals, owners atomic.Int32
	var seen sync.Map
	all := make(chan struct{})
	hook := &watch{before: func(commands []redis.Cmder) {
		if commands[0].Name() != "set" {
			return
		}
		if _, again := seen.LoadOrStore(commands[0].Args()[2], true); !again && owners.Add(1) == callers {
			close(all)
		}
	}}
	stores := []*session.Store{f.with(limits, hook), f.with(limits, hook)}
	results := make([]session.Session, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			var err error
			results[i], err = stores[i%2].Renewed(f.ctx, cookie, stored, func(ctx context.Context, s session.Session) (session.Session, error) {
				renewals.Add(1)
				select {
				case <-all:
				case <-ctx.Done():
					t.Error("not all callers came")
				}
				return fresh(ctx, s)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := renewals.Load(); n != 1 {
		t.Errorf("renewed %d times, want 1", n)
	}
	want := f.load(cookie)
	for i, got := range results {
		if !equal(got, want) || got.RefreshToken != "refresh-token-2" {
			t.Fatalf("caller %d got %+v, stored is %+v", i, got, want)
		}
	}
}

// A renewal does not undo a sign-out that comes meanwhile: not for the caller that renews,
// not for one that waits, and not in Redis.
func TestSignOutDuringRenewal(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fixture, string) error{
		"EndSID":     func(f *fixture, _ string) error { _, err := f.store.EndSID(f.ctx, issuer, sid); return err },
		"EndSubject": func(f *fixture, _ string) error { _, err := f.store.EndSubject(f.ctx, issuer, subject); return err },
		"Delete":     func(f *fixture, cookie string) error { _, err := f.store.Delete(f.ctx, cookie); return err },
	} {
		for outcome, then := range map[string]renewal{"renewed": fresh, "unreachable": fails(errTest), "revoked": fails(session.ErrRevoked)} {
			t.Run(name+"/"+outcome, func(t *testing.T) {
				t.Parallel()
				f := setup(t)
				cookie := f.create(due())
				stored := f.load(cookie)
				renew, begun, release := blocked(then)
				results := make(chan error, 2)
				go func() { _, err := f.store.Renewed(f.ctx, cookie, stored, renew); results <- err }()
				<-begun
				go func() { _, err := f.with(limits).Renewed(f.ctx, cookie, stored, never(t)); results <- err }()
				if err := end(f, cookie); err != nil {
					t.Fatal(err)
				}
				waiter := <-results // does not wait for the renewal
				close(release)
				for _, err := range []error{waiter, <-results} {
					if !errors.Is(err, session.ErrNone) {
						t.Errorf("a caller got %v, want ErrNone", err)
					}
				}
				f.gone(cookie)
				for _, key := range f.keys() {
					if !strings.HasPrefix(key, "session:ended:") && !strings.HasPrefix(key, "session:s") {
						t.Errorf("the session left %s", key)
					}
				}
			})
		}
	}
}

// A process sleeps during a renewal until its lock is over, and another one renews. The
// sleeper neither overwrites the other's tokens, nor ends the session because its own
// token is used up, nor removes another's lock.
func TestLateRenewal(t *testing.T) {
	t.Parallel()
	for outcome, late := range map[string]renewal{"renewed": fails(nil), "unreachable": fails(errTest), "revoked": fails(session.ErrRevoked)} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			cookie := f.create(due())
			stored := f.load(cookie)
			got, err := f.store.Renewed(f.ctx, cookie, stored, func(ctx context.Context, s session.Session) (session.Session, error) {
				f.client.Del(ctx, lock(cookie)) // as if the lock had expired
				if _, err := f.with(limits).Renewed(ctx, cookie, stored, fresh); err != nil {
					t.Error(err)
				}
				f.client.Set(ctx, lock(cookie), "the next", time.Minute)
				return late(ctx, s)
			})
			if err != nil || got.RefreshToken != "refresh-token-2" || !equal(got, f.load(cookie)) {
				t.Errorf("the sleeper got %+v, %v; want the session that the other one stored", got, err)
			}
			if owner := f.client.Get(f.ctx, lock(cookie)).Val(); owner != "the next" {
				t.Errorf("the lock belongs to %q, want the next one", owner)
			}
			if n, err := f.store.EndSID(f.ctx, issuer, sid); n != 1 || err != nil {
				t.Errorf("%d sessions ended, want 1: %v", n, err)
			}
		})
	}
}

// A session that a dead process locked is renewed by another one when the lock expires.
func TestDeadLockHolder(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(due())
	stored := f.load(cookie)
	if err := f.client.Set(f.ctx, lock(cookie), "dead", 300*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	got, err := f.store.Renewed(f.ctx, cookie, stored, func(ctx context.Context, s session.Session) (session.Session, error) {
		if owner := f.client.Get(ctx, lock(cookie)).Val(); owner == "" || owner == "dead" {
			t.Errorf("renews while the lock belongs to %q", owner)
		}
		return fresh(ctx, s)
	})
	if err != nil || got.RefreshToken != "refresh-token-2" {
		t.Errorf("got %+v, %v; want renewed tokens", got, err)
	}
}

// A lock expires, but not before the deadline of its renewal.
func TestLockLifetime(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(due())
	if _, err := f.store.Renewed(f.ctx, cookie, f.load(cookie), func(ctx context.Context, s session.Session) (session.Session, error) {
		end, _ := ctx.Deadline()
		if ttl := f.ttl(lock(cookie)); ttl <= time.Until(end) || ttl > 2*session.RenewTimeout {
			t.Errorf("the lock lives for %s, the renewal may take %s", ttl, time.Until(end))
		}
		return fresh(ctx, s)
	}); err != nil {
		t.Fatal(err)
	}
}

// A caller waits until its own context ends, or for RenewTimeout: then it gets the session
// as it is.
func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cookie := f.create(due())
	stored := f.load(cookie)
	if err := f.client.Set(f.ctx, lock(cookie), "hangs", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(f.ctx, 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := f.store.Renewed(ctx, cookie, stored, never(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a short context the wait ended with %v, want DeadlineExceeded", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("with a context of 100ms the wait took %s", took)
	}
	began = time.Now()
	got, err := f.store.Renewed(f.ctx, cookie, stored, never(t))
	if err != nil || !equal(got, stored) {
		t.Errorf("after the wait the caller got %+v, %v; want the stored session", got, err)
	}
	if took := time.Since(began); took < session.RenewTimeout || took > session.RenewTimeout+time.Second {
		t.Errorf("the wait took %s, want %s", took, session.RenewTimeout)
	}
	if owner := f.client.Get(f.ctx, lock(cookie)).Val(); owner != "hangs" {
		t.Errorf("the lock belongs to %q, want the one that hangs", owner)
	}
}
