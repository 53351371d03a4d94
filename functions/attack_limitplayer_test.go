package functions_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A player's limit is theirs: by token and by session it is one, and it is no other
// player's.
func TestAttackLimitByPlayer(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startLimited(t, i, "LIMIT_ANONYMOUS_BURST=1000", "LIMIT_SERVICE_BURST=5", "LIMIT_SERVICE_RATE=1")
	v, second := s.visitor(), s.visitor()
	v.signIn(i, "/", signingIn{subject: "alice"})
	second.signIn(i, "/", signingIn{subject: "alice"})
	const tokens = 4
	alice := make([]string, tokens)
	for n := range alice {
		alice[n] = i.fresh(t, "alice", map[string]any{"jti": fmt.Sprint(n)})
	}
	hers := func() answer { return v.do(http.MethodGet, "/v1/me", "") }
	wantRateLimited(t, flood(t, hers), "player")
	t.Run("another session of hers", func(t *testing.T) {
		wantFlooded(t, s, hers, func(int) answer { return second.do(http.MethodGet, "/v1/me", "") })
	})
	t.Run("her tokens", func(t *testing.T) {
		wantFlooded(t, s, hers, func(n int) answer { return s.call(http.MethodGet, "/v1/me", alice[n%tokens], "") })
	})
	t.Run("her tokens from everywhere", func(t *testing.T) {
		wantFlooded(t, s, hers, func(n int) answer {
			return s.call(http.MethodGet, "/v1/me", alice[0], "", fmt.Sprintf("X-Forwarded-For: 198.51.100.%d", n))
		})
	})
	t.Run("every route", func(t *testing.T) {
		paths := []string{"/v1/me", "/v1/me/overview", "/v1/me/notifications", "/v1/me/notifications/stream", "/v1/users/u_1/entitlements", "/debug/notification/inbox/u_1"}
		wantFlooded(t, s, hers, func(n int) answer { return s.call(http.MethodGet, paths[n%len(paths)], alice[0], "") })
		wantFlooded(t, s, hers, func(int) answer { return v.do(http.MethodPost, "/login/link", "", csrf) })
	})
	t.Run("somebody whose name begins like hers", func(t *testing.T) {
		for _, subject := range []string{"alice ", "Alice", "alice}", "alic"} {
			wantStatus(t, s.call(http.MethodPost, "/v1/me", i.fresh(t, subject, nil), ""), http.StatusOK)
		}
	})
	t.Run("a service", func(t *testing.T) {
		writer := i.token(t, nil)
		wantRateLimited(t, flood(t, func() answer { return s.call(http.MethodGet, "/v1/users/u_1/entitlements", writer, "") }), "service")
	})
	t.Run("she is signed out all the same", func(t *testing.T) {
		wantStatus(t, v.do(http.MethodPost, "/logout", "", csrf), http.StatusNoContent)
	})
}

// A flood of one player does not slow another one down.
func TestAttackFloodOfOnePlayer(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startLimited(t, i, "LIMIT_PLAYER_BURST=30", "LIMIT_PLAYER_RATE=10")
	flooder, other := i.fresh(t, "mallory", nil), i.fresh(t, "alice", nil)
	s.userID(other)
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
				status := s.call(http.MethodGet, "/v1/me", flooder, "").status
				mutex.Lock()
				answered[status]++
				mutex.Unlock()
			}
		})
	}
	eventually(t, 10*time.Second, "the flood is refused", func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return answered[http.StatusTooManyRequests] > 20
	})
	const asked = 20 // less than her burst
	took := make([]time.Duration, asked)
	for n := range took {
		began := time.Now()
		wantStatus(t, s.call(http.MethodGet, "/v1/me", other, ""), http.StatusOK)
		took[n] = time.Since(began)
	}
	close(stop)
	flooding.Wait()
	slices.Sort(took)
	t.Logf("during a flood of %v: median %s, longest %s", answered, took[asked/2], took[asked-1])
	if took[asked/2] > time.Second {
		t.Errorf("half of the requests took longer than %s", took[asked/2])
	}
}

// What has a quota of its own is limited below the caller's limit, whichever way it
// is asked for.
func TestAttackQuota(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	v := s.visitor()
	v.signIn(i, "/", signingIn{subject: "alice"})
	alice := i.fresh(t, "alice", nil)
	link := func() answer { return s.linkToken(alice, "x") }
	begin := func() answer { return v.do(http.MethodPost, "/login/link?return_to="+url.QueryEscape("/"), "", csrf) }
	for name, ask := range map[string]func() answer{"link-identity": link, "begin-link": begin} {
		passed, alone := 0, s.alone()
		a := flood(t, func() answer {
			a := ask()
			if a.status != http.StatusTooManyRequests {
				passed++
			}
			return a
		})
		wantProblem(t, a, http.StatusTooManyRequests, "rate_limited")
		if passed < 10 || passed > 12+10*(s.alone()-alone) { // ten a minute, and what came back meanwhile
			t.Errorf("%s: %d were let through", name, passed)
		}
		if a.header.Get("Retry-After") == "" || !strings.Contains(strings.Join(a.header.Values("RateLimit-Policy"), " "), `"`+name+`";q=10;w=60`) {
			t.Errorf("headers %v", a.header)
		}
	}
	if v.whoami() == "" {
		t.Error("she is locked out of everything")
	}
}

// Identities that are linked are one caller: ten of them have no ten limits.
func TestAttackLimitOfLinkedIdentities(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startLimited(t, i, "LIMIT_ANONYMOUS_BURST=1000")
	alice, linked, bob := i.fresh(t, "alice", nil), i.fresh(t, "alice's second", nil), i.fresh(t, "bob", nil)
	s.userID(alice)
	wantStatus(t, s.linkToken(alice, linked), http.StatusOK)
	hers := func() answer { return s.call(http.MethodGet, "/v1/me", alice, "") }
	t.Run("the limit", func(t *testing.T) {
		wantFlooded(t, s, hers, func(int) answer { return s.call(http.MethodGet, "/v1/me", linked, "") })
	})
	t.Run("and of somebody else", func(t *testing.T) {
		flood(t, hers)
		wantStatus(t, s.call(http.MethodGet, "/v1/me", bob, ""), http.StatusOK)
	})
	t.Run("a quota", func(t *testing.T) {
		quick := startAt(t, i)
		quick.userID(alice)
		wantStatus(t, quick.linkToken(alice, linked), http.StatusOK)
		var a answer
		quick.shared(func() {
			flood(t, func() answer { return quick.linkToken(alice, "x") })
			a = quick.linkToken(linked, "x")
		})
		wantProblem(t, a, http.StatusTooManyRequests, "rate_limited")
	})
}

// Sign-ins that are begun and not finished fill no Redis: an address begins a bounded
// number of them, however many other requests it may send.
func TestAttackSignInsKeepLittle(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i, "LIMIT_SIGN_INS=6")
	v := s.visitor()
	answered := v.begin("/docs")
	began, passed, alone := time.Now(), 1, s.alone()
	for range 100 {
		a := s.visitor().do(http.MethodGet, "/login", "")
		if a.status == http.StatusSeeOther {
			passed++
			continue
		}
		wantProblem(t, a, http.StatusTooManyRequests, "rate_limited")
		if policy := strings.Join(a.header.Values("RateLimit-Policy"), " "); !strings.Contains(policy, `"sign-in";q=6;w=60`) {
			t.Errorf("RateLimit-Policy %q, want the sign-in's", policy)
		}
	}
	if most := 6*(1+s.alone()-alone) + int(time.Since(began)/(10*time.Second)) + 1; passed > most {
		t.Errorf("%d sign-ins of 101 were begun, want %d at most", passed, most)
	}
	if kept := s.keys("session:login:*"); len(kept) != passed {
		t.Errorf("Redis keeps %d sign-ins, want the %d that were begun", len(kept), passed)
	}
	// The one that was begun is finished all the same, and other pages are not slowed.
	wantStatus(t, v.comeBack(i.signs(t, answered, signingIn{subject: "alice"})), http.StatusSeeOther)
	wantStatus(t, s.visitor().do(http.MethodGet, "/docs", ""), http.StatusOK)
}
