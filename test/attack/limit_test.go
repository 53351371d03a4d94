package attack_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// startLimited starts a system where every limit has a burst of five and a rate of one
// request a second.
func startLimited(t testing.TB, i *system.CodeIssuer, environment ...string) *system.System {
	t.Helper()
	return system.StartOn(t, kit.Listen(t), append([]string{
		"WAKES=false", "LIMIT_PATIENCE=1s", "OIDC_ISSUER=" + i.URL, "LIMIT_ANONYMOUS_RATE=1", "LIMIT_ANONYMOUS_BURST=5", "LIMIT_PLAYER_RATE=1", "LIMIT_PLAYER_BURST=5",
	}, environment...)...)
}

// wantFlooded uses up the limit with same, and fails when more of ask's 20 requests pass
// than are refilled meanwhile, one a second.
func wantFlooded(t testing.TB, s *system.System, same func() system.Answer, ask func(n int) system.Answer) {
	t.Helper()
	const asked = 20
	var passed, most int
	s.Shared(func() {
		system.Flood(t, same)
		began := time.Now()
		passed = 0
		for n := range asked {
			if ask(n).Status != http.StatusTooManyRequests {
				passed++
			}
		}
		most = int(time.Since(began)/time.Second) + 1
	})
	if passed > most {
		t.Errorf("%d of %d requests passed, want %d at most", passed, asked, most)
	}
}

// wantRateLimited fails unless a has all that a client needs to know.
func wantRateLimited(t testing.TB, a system.Answer, policy string) {
	t.Helper()
	system.WantProblem(t, a, http.StatusTooManyRequests, "rate_limited")
	if after, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || after < 1 || after > 60 {
		t.Errorf("Retry-After %q, want 1 to 60", a.Header.Get("Retry-After"))
	}
	if got := a.Header.Values("RateLimit-Policy"); len(got) != 1 || got[0] != `"`+policy+`";q=5;w=5` {
		t.Errorf("RateLimit-Policy %q, want q=5;w=5 of %s", got, policy)
	}
	if got := a.Header.Values("RateLimit"); len(got) != 1 || !strings.HasPrefix(got[0], `"`+policy+`";r=0;t=`) {
		t.Errorf("RateLimit %q, want r=0 of %s", got, policy)
	}
}

// Too many requests of one address are refused, and no header makes it another address.
func TestAttackLimitByAddress(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := startLimited(t, i)
	anonymous := func(headers ...string) system.Answer { return s.Call(http.MethodGet, "/v1/me", "", "", headers...) }
	nobody := func() system.Answer { return anonymous() }
	good := i.Fresh(t, "alice", nil)
	user := s.UserID(good)
	v := s.Visitor()
	v.SignIn(i, "/", system.SigningIn{Subject: "bob", Sid: "of bob"})

	wantRateLimited(t, system.Flood(t, nobody), "anonymous")
	t.Run("an address that one writes oneself", func(t *testing.T) {
		wantFlooded(t, s, nobody, func(n int) system.Answer {
			other := fmt.Sprintf("198.51.100.%d", n)
			return anonymous("X-Forwarded-For: "+other, "X-Forwarded-For: "+other+", 127.0.0.1", "Forwarded: for="+other, "X-Real-IP: "+other,
				"True-Client-IP: "+other, "CF-Connecting-IP: "+other, "X-Client-IP: "+other, "X-Cluster-Client-IP: "+other, "Via: 1.1 "+other)
		})
	})
	t.Run("every page of it", func(t *testing.T) {
		pages := []string{"/", "/home.js", "/home.css", "/docs", "/docs.js", "/openapi.json", "/login", "/login?return_to=//x", "/login/callback", "/v1/me"}
		wantFlooded(t, s, nobody, func(n int) system.Answer { return s.Visitor().Do(http.MethodGet, pages[n%len(pages)], "") })
		writes := []string{"/logout", "/login/link", system.GrantsPath, system.EventsPath, "/v1/me", "/v1/me/identities", "/v1/me/notifications/x/read"}
		wantFlooded(t, s, nobody, func(n int) system.Answer {
			return s.Visitor().Do(http.MethodPost, writes[n%len(writes)], "", system.CSRF)
		})
	})
	t.Run("tokens that are not good", func(t *testing.T) {
		wantFlooded(t, s, nobody, func(n int) system.Answer { return s.Call(http.MethodGet, "/v1/me", fmt.Sprint("bad", n), "") })
	})
	t.Run("sessions that are not", func(t *testing.T) {
		wantFlooded(t, s, nobody, func(n int) system.Answer {
			return s.Call(http.MethodGet, "/v1/me", "", "", fmt.Sprint("Cookie: miniserver_session=", strings.Repeat(string(rune('a'+n)), 43)))
		})
	})
	t.Run("logout tokens that are not good", func(t *testing.T) {
		wantFlooded(t, s, nobody, func(int) system.Answer { return s.BackChannel("x") })
		wantFlooded(t, s, nobody, func(int) system.Answer { return s.Call(http.MethodPost, system.BackChannelPath, "", "{}") })
	})
	t.Run("good ones of the same address go on", func(t *testing.T) {
		s := s.In(t)
		system.Flood(t, func() system.Answer { return s.Call(http.MethodGet, "/v1/me", "bad", "") })
		if got := s.UserID(good); got != user {
			t.Errorf("the user is %s, want %s", got, user)
		}
		v.S = s
		v.Whoami()
		for n := range 30 { // more than any burst
			system.WantStatus(t, s.BackChannel(i.LogoutToken(t, fmt.Sprint("sid", n), nil)), http.StatusOK)
		}
		system.WantStatus(t, s.BackChannel(i.LogoutToken(t, "of bob", nil)), http.StatusOK)
		if s := s.Call(http.MethodGet, "/v1/me", "", "", "Cookie: "+v.CookieHeader()); s.Status == http.StatusOK {
			t.Error("the session is still open")
		}
	})
	t.Run("health is never limited", func(t *testing.T) {
		for range 50 {
			system.WantStatus(t, s.Call(http.MethodGet, "/health/liveness", "", ""), http.StatusOK)
			system.WantStatus(t, s.Call(http.MethodGet, "/health/readiness", "", ""), http.StatusOK)
		}
	})
}
