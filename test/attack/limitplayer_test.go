package attack_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A player has one limit, by token and by session, and shares it with no other player.
func TestAttackLimitByPlayer(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := startLimited(t, i, "LIMIT_ANONYMOUS_BURST=1000", "LIMIT_SERVICE_BURST=5", "LIMIT_SERVICE_RATE=1")
	v, second := s.Visitor(), s.Visitor()
	v.SignIn(i, "/", system.SigningIn{Subject: "alice"})
	second.SignIn(i, "/", system.SigningIn{Subject: "alice"})
	const tokens = 4
	alice := make([]string, tokens)
	for n := range alice {
		alice[n] = i.Fresh(t, "alice", map[string]any{"jti": fmt.Sprint(n)})
	}
	hers := func() system.Answer { return v.Do(http.MethodGet, "/v1/me", "") }
	wantRateLimited(t, system.Flood(t, hers), "player")
	t.Run("another session of hers", func(t *testing.T) {
		wantFlooded(t, s, hers, func(int) system.Answer { return second.Do(http.MethodGet, "/v1/me", "") })
	})
	t.Run("her tokens", func(t *testing.T) {
		wantFlooded(t, s, hers, func(n int) system.Answer { return s.Call(http.MethodGet, "/v1/me", alice[n%tokens], "") })
	})
	t.Run("her tokens from everywhere", func(t *testing.T) {
		wantFlooded(t, s, hers, func(n int) system.Answer {
			return s.Call(http.MethodGet, "/v1/me", alice[0], "", fmt.Sprintf("X-Forwarded-For: 198.51.100.%d", n))
		})
	})
	t.Run("every route", func(t *testing.T) {
		paths := []string{"/v1/me", "/v1/me/overview", "/v1/me/notifications", "/v1/me/notifications/stream", "/v1/users/u_1/entitlements", "/debug/notification/inbox/u_1"}
		wantFlooded(t, s, hers, func(n int) system.Answer { return s.Call(http.MethodGet, paths[n%len(paths)], alice[0], "") })
		wantFlooded(t, s, hers, func(int) system.Answer { return v.Do(http.MethodPost, "/login/link", "", system.CSRF) })
	})
	t.Run("somebody whose name begins like hers", func(t *testing.T) {
		for _, subject := range []string{"alice ", "Alice", "alice}", "alic"} {
			system.WantStatus(t, s.Call(http.MethodPost, "/v1/me", i.Fresh(t, subject, nil), ""), http.StatusOK)
		}
	})
	t.Run("a service", func(t *testing.T) {
		writer := i.Token(t, nil)
		wantRateLimited(t, system.Flood(t, func() system.Answer { return s.Call(http.MethodGet, "/v1/users/u_1/entitlements", writer, "") }), "service")
	})
	t.Run("she is signed out all the same", func(t *testing.T) {
		system.WantStatus(t, v.Do(http.MethodPost, "/logout", "", system.CSRF), http.StatusNoContent)
	})
}

// A flood of one player does not slow another one down.
func TestAttackFloodOfOnePlayer(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := startLimited(t, i, "LIMIT_PLAYER_BURST=30", "LIMIT_PLAYER_RATE=10")
	flooder, other := i.Fresh(t, "mallory", nil), i.Fresh(t, "alice", nil)
	s.UserID(other)
	stop := make(chan struct{})
	var flooding sync.WaitGroup
	var mutex sync.Mutex
	answered := map[int]int{}
	for range 8 {
		flooding.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				status := s.Call(http.MethodGet, "/v1/me", flooder, "").Status
				mutex.Lock()
				answered[status]++
				mutex.Unlock()
			}
		})
	}
	kit.Eventually(t, "the flood is refused", func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return answered[http.StatusTooManyRequests] > 20
	})
	const asked = 20 // less than her burst
	took := make([]time.Duration, asked)
	for n := range took {
		began := time.Now()
		system.WantStatus(t, s.Call(http.MethodGet, "/v1/me", other, ""), http.StatusOK)
		took[n] = time.Since(began)
	}
	close(stop)
	flooding.Wait()
	slices.Sort(took)
	t.Logf("during a flood of %v: median %s, longest %s", answered, took[asked/2], took[asked-1])
	if took[asked/2] > time.Second {
		t.Errorf("the median request took %s, want 1s at most", took[asked/2])
	}
}

// A route with a quota of its own refuses before the caller's limit, with each kind of
// credentials.
func TestAttackQuota(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	v := s.Visitor()
	v.SignIn(i, "/", system.SigningIn{Subject: "alice"})
	alice := i.Fresh(t, "alice", nil)
	link := func() system.Answer { return s.LinkToken(alice, "x") }
	begin := func() system.Answer {
		return v.Do(http.MethodPost, "/login/link?return_to="+url.QueryEscape("/"), "", system.CSRF)
	}
	for name, ask := range map[string]func() system.Answer{"link-identity": link, "begin-link": begin} {
		passed, alone := 0, s.Alone()
		a := system.Flood(t, func() system.Answer {
			a := ask()
			if a.Status != http.StatusTooManyRequests {
				passed++
			}
			return a
		})
		system.WantProblem(t, a, http.StatusTooManyRequests, "rate_limited")
		if passed < 10 || passed > 12+10*(s.Alone()-alone) { // ten a minute, and those refilled meanwhile
			t.Errorf("%s: %d requests passed, want 10 to 12", name, passed)
		}
		if a.Header.Get("Retry-After") == "" || !strings.Contains(strings.Join(a.Header.Values("RateLimit-Policy"), " "), `"`+name+`";q=10;w=60`) {
			t.Errorf("headers %v, want Retry-After and the quota %s", a.Header, name)
		}
	}
	if v.Whoami() == "" {
		t.Error("the quota locks her out of everything")
	}
}

// Linked identities are one caller: ten of them do not have ten limits.
func TestAttackLimitOfLinkedIdentities(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := startLimited(t, i, "LIMIT_ANONYMOUS_BURST=1000")
	alice, linked, bob := i.Fresh(t, "alice", nil), i.Fresh(t, "alice's second", nil), i.Fresh(t, "bob", nil)
	s.UserID(alice)
	system.WantStatus(t, s.LinkToken(alice, linked), http.StatusOK)
	hers := func() system.Answer { return s.Call(http.MethodGet, "/v1/me", alice, "") }
	t.Run("the limit", func(t *testing.T) {
		wantFlooded(t, s, hers, func(int) system.Answer { return s.Call(http.MethodGet, "/v1/me", linked, "") })
	})
	t.Run("and of somebody else", func(t *testing.T) {
		system.Flood(t, hers)
		system.WantStatus(t, s.Call(http.MethodGet, "/v1/me", bob, ""), http.StatusOK)
	})
	t.Run("a quota", func(t *testing.T) {
		quick := system.StartAt(t, i)
		quick.UserID(alice)
		system.WantStatus(t, quick.LinkToken(alice, linked), http.StatusOK)
		var a system.Answer
		quick.Shared(func() {
			system.Flood(t, func() system.Answer { return quick.LinkToken(alice, "x") })
			a = quick.LinkToken(linked, "x")
		})
		system.WantProblem(t, a, http.StatusTooManyRequests, "rate_limited")
	})
}

// Unfinished sign-ins do not fill Redis: an address begins a bounded number of them,
// however many other requests it may send.
func TestAttackSignInsKeepLittle(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i, "LIMIT_SIGN_INS=6")
	v := s.Visitor()
	answered := v.Begin("/docs")
	began, passed, alone := time.Now(), 1, s.Alone()
	for range 100 {
		a := s.Visitor().Do(http.MethodGet, "/login", "")
		if a.Status == http.StatusSeeOther {
			passed++
			continue
		}
		system.WantProblem(t, a, http.StatusTooManyRequests, "rate_limited")
		if policy := strings.Join(a.Header.Values("RateLimit-Policy"), " "); !strings.Contains(policy, `"sign-in";q=6;w=60`) {
			t.Errorf("RateLimit-Policy %q, want the sign-in's", policy)
		}
	}
	if most := 6*(1+s.Alone()-alone) + int(time.Since(began)/(10*time.Second)) + 1; passed > most {
		t.Errorf("%d of 101 sign-ins were begun, want %d at most", passed, most)
	}
	if kept := s.Keys("session:login:*"); len(kept) != passed {
		t.Errorf("Redis keeps %d sign-ins, want the %d that were begun", len(kept), passed)
	}
	// A sign-in that was begun can be finished, and other pages are not limited.
	system.WantStatus(t, v.ComeBack(i.Signs(t, answered, system.SigningIn{Subject: "alice"})), http.StatusSeeOther)
	system.WantStatus(t, s.Visitor().Do(http.MethodGet, "/docs", ""), http.StatusOK)
}
