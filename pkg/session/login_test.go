package session_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/session"
	"github.com/miniserversystem/miniserver/test/kit"
)

func (f *fixture) begin(l session.Login) (state, secret string) {
	f.t.Helper()
	state, secret, err := f.store.BeginLogin(f.ctx, l)
	if err != nil {
		f.t.Fatal(err)
	}
	return state, secret
}

func (f *fixture) noLogin(state, secret string) {
	f.t.Helper()
	if l, err := f.store.TakeLogin(f.ctx, state, secret); !errors.Is(err, session.ErrLogin) || l != (session.Login{}) {
		f.t.Errorf("took %+v: %v, want ErrLogin", l, err)
	}
}

// Two tabs of a browser sign in at once; each sign-in ends once.
func TestLogin(t *testing.T) {
	t.Parallel()
	f := setup(t)
	one := session.Login{Nonce: "nonce-1", Verifier: "verifier-1", ReturnTo: "/one", LinkTo: "u_1"}
	two := session.Login{Nonce: "nonce-2", Verifier: "verifier-2", ReturnTo: "/two"}
	stateOne, secretOne := f.begin(one)
	for _, key := range f.keys() {
		if ttl := f.ttl(key); ttl > session.LoginLifetime || ttl < session.LoginLifetime-time.Minute {
			t.Errorf("remembered for %s", ttl)
		}
	}
	stateTwo, secretTwo := f.begin(two)
	if stateOne == stateTwo || secretOne == secretTwo || len(stateOne) != 43 || len(secretOne) != 43 {
		t.Errorf("states and secrets are %s %s, %s %s, want 43 characters each, all different", stateOne, secretOne, stateTwo, secretTwo)
	}
	f.noLogin(stateOne, secretTwo)
	if got, err := f.store.TakeLogin(f.ctx, stateTwo, secretTwo); err != nil || got != two {
		t.Errorf("the second sign-in is %+v, %v; want %+v", got, err, two)
	}
	if got, err := f.store.TakeLogin(f.ctx, stateOne, secretOne); err != nil || got != one {
		t.Errorf("the first sign-in is %+v, %v; want %+v", got, err, one)
	}
	f.noLogin(stateOne, secretOne)
	f.noLogin(stateTwo, secretTwo)
	if keys := f.keys(); len(keys) != 0 {
		t.Errorf("Redis still has %v", keys)
	}
}

// Another browser can neither complete a sign-in nor end it.
func TestLoginOfAnotherBrowser(t *testing.T) {
	t.Parallel()
	f := setup(t)
	want := session.Login{Nonce: "nonce"}
	state, secret := f.begin(want)
	_, foreign := f.begin(session.Login{})
	for _, wrong := range []string{foreign, "", secret[:42], secret + "A", secret + "\n", strings.ToLower(secret), state, strings.Repeat("A", 43), strings.Repeat("x", 1<<16)} {
		f.noLogin(state, wrong)
	}
	for _, wrong := range []string{"", secret, state[:42], state + "A", strings.ToLower(state), strings.Repeat("x", 1<<16), "\x00"} {
		f.noLogin(wrong, secret)
	}
	if got, err := f.store.TakeLogin(f.ctx, state, secret); err != nil || got != want {
		t.Errorf("the right browser took %+v, %v; want %+v", got, err, want)
	}
}

// The stored sign-in of one state does not open under another state.
func TestMovedLogin(t *testing.T) {
	t.Parallel()
	f := setup(t)
	one, secret := f.begin(session.Login{Nonce: "one"})
	keyOne := f.keys()[0]
	two, _ := f.begin(session.Login{Nonce: "two"})
	for _, key := range f.keys() {
		if key != keyOne {
			f.client.Set(f.ctx, key, f.client.Get(f.ctx, keyOne).Val(), time.Minute)
		}
	}
	f.noLogin(two, secret)
	if _, err := f.store.TakeLogin(f.ctx, one, secret); err != nil {
		t.Error(err)
	}
}

func TestLoginExpires(t *testing.T) {
	t.Parallel()
	f := setup(t)
	state, secret := f.begin(session.Login{})
	f.expire(f.keys()[0], time.Millisecond)
	kit.Eventually(t, "it expires", func() bool { return len(f.keys()) == 0 })
	f.noLogin(state, secret)
}

// The same answer of the issuer comes many times at once: it completes one sign-in.
func TestLoginIsTakenOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	other := f.with(limits)
	for range 10 {
		state, secret := f.begin(session.Login{Nonce: "nonce"})
		var taken atomic.Int32
		var group sync.WaitGroup
		for i := range 16 {
			store := []*session.Store{f.store, other}[i%2]
			group.Go(func() {
				switch login, err := store.TakeLogin(f.ctx, state, secret); {
				case err == nil && login.Nonce == "nonce":
					taken.Add(1)
				case !errors.Is(err, session.ErrLogin) || login != session.Login{}:
					t.Errorf("took %+v, %v; want ErrLogin", login, err)
				}
			})
		}
		group.Wait()
		if n := taken.Load(); n != 1 {
			t.Fatalf("the sign-in was taken %d times, want 1", n)
		}
	}
}
