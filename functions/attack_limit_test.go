package functions_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// startLimited starts a system in which nobody may ask for more than five things at
// once, and one a second.
func startLimited(t testing.TB, i *codeIssuer, environment ...string) *system {
	t.Helper()
	return start(t, kit.Listen(t), append([]string{
		"WAKES=false", "LIMIT_PATIENCE=1s", "OIDC_ISSUER=" + i.url, "LIMIT_ANONYMOUS_RATE=1", "LIMIT_ANONYMOUS_BURST=5", "LIMIT_PLAYER_RATE=1", "LIMIT_PLAYER_BURST=5",
	}, environment...)...)
}

// flood asks until it is too much, and returns that answer.
func flood(t testing.TB, ask func() answer) answer {
	t.Helper()
	for range 100 {
		if a := ask(); a.status == http.StatusTooManyRequests {
			return a
		}
	}
	t.Fatal("100 requests, and none was too many")
	return answer{}
}

// wantFlooded takes what same lets through, and then fails when ask gets more of 20
// requests through than come back by themselves, one a second.
func wantFlooded(t testing.TB, s *system, same func() answer, ask func(n int) answer) {
	t.Helper()
	const asked = 20
	var passed, most int
	s.shared(func() {
		flood(t, same)
		began := time.Now()
		passed = 0
		for n := range asked {
			if ask(n).status != http.StatusTooManyRequests {
				passed++
			}
		}
		most = int(time.Since(began)/time.Second) + 1
	})
	if passed > most {
		t.Errorf("%d of %d were let through, and %d may be", passed, asked, most)
	}
}

// alone is how often limits became each process's own, or shared again: on a busy
// machine Redis takes longer to answer than limits wait for it. Each time is another
// bucket.
func (s *system) alone() int {
	log := s.log.String()
	return strings.Count(log, "limits are each process's own") + strings.Count(log, "limits are shared again")
}

// shared does what counts, and anew when limits were not shared all the time.
func (s *system) shared(do func()) {
	for range 5 {
		before := s.alone()
		if do(); s.alone() == before {
			return
		}
	}
}

// wantRateLimited fails unless a says all that a client needs to know.
func wantRateLimited(t testing.TB, a answer, policy string) {
	t.Helper()
	wantProblem(t, a, http.StatusTooManyRequests, "rate_limited")
	if after, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || after < 1 || after > 60 {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	if got := a.header.Values("RateLimit-Policy"); len(got) != 1 || got[0] != `"`+policy+`";q=5;w=5` {
		t.Errorf("RateLimit-Policy %q", got)
	}
	if got := a.header.Values("RateLimit"); len(got) != 1 || !strings.HasPrefix(got[0], `"`+policy+`";r=0;t=`) {
		t.Errorf("RateLimit %q", got)
	}
}

// Whoever asks too much is told so, and no header that they send makes them
// somebody else.
func TestAttackLimitByAddress(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startLimited(t, i)
	anonymous := func(headers ...string) answer { return s.call(http.MethodGet, "/v1/me", "", "", headers...) }
	nobody := func() answer { return anonymous() }
	good := i.fresh(t, "alice", nil)
	user := s.userID(good)
	v := s.visitor()
	v.signIn(i, "/", signingIn{subject: "bob", sid: "of bob"})

	wantRateLimited(t, flood(t, nobody), "anonymous")
	t.Run("an address that one writes oneself", func(t *testing.T) {
		wantFlooded(t, s, nobody, func(n int) answer {
			other := fmt.Sprintf("198.51.100.%d", n)
			return anonymous("X-Forwarded-For: "+other, "X-Forwarded-For: "+other+", 127.0.0.1", "Forwarded: for="+other, "X-Real-IP: "+other,
				"True-Client-IP: "+other, "CF-Connecting-IP: "+other, "X-Client-IP: "+other, "X-Cluster-Client-IP: "+other, "Via: 1.1 "+other)
		})
	})
	t.Run("every page of it", func(t *testing.T) {
		pages := []string{"/", "/home.js", "/home.css", "/docs", "/openapi.json", "/login", "/login?return_to=//x", "/login/callback", "/v1/me"}
		wantFlooded(t, s, nobody, func(n int) answer { return s.visitor().do(http.MethodGet, pages[n%len(pages)], "") })
		writes := []string{"/logout", "/login/link", grantsPath, eventsPath, "/v1/me", "/v1/me/identities", "/v1/me/notifications/x/read"}
		wantFlooded(t, s, nobody, func(n int) answer { return s.visitor().do(http.MethodPost, writes[n%len(writes)], "", csrf) })
	})
	t.Run("tokens that are not good", func(t *testing.T) {
		wantFlooded(t, s, nobody, func(n int) answer { return s.call(http.MethodGet, "/v1/me", fmt.Sprint("bad", n), "") })
	})
	t.Run("sessions that are not", func(t *testing.T) {
		wantFlooded(t, s, nobody, func(n int) answer {
			return s.call(http.MethodGet, "/v1/me", "", "", fmt.Sprint("Cookie: miniserver_session=", strings.Repeat(string(rune('a'+n)), 43)))
		})
	})
	t.Run("logout tokens that are not good", func(t *testing.T) {
		wantFlooded(t, s, nobody, func(int) answer { return s.backChannel("x") })
		wantFlooded(t, s, nobody, func(int) answer { return s.call(http.MethodPost, backChannelPath, "", "{}") })
	})
	t.Run("good ones of the same address go on", func(t *testing.T) {
		s := s.in(t)
		flood(t, func() answer { return s.call(http.MethodGet, "/v1/me", "bad", "") })
		if got := s.userID(good); got != user {
			t.Errorf("%s is not %s", got, user)
		}
		v.s = s
		v.whoami()
		for n := range 30 { // more than any burst
			wantStatus(t, s.backChannel(i.logoutToken(t, fmt.Sprint("sid", n), nil)), http.StatusOK)
		}
		wantStatus(t, s.backChannel(i.logoutToken(t, "of bob", nil)), http.StatusOK)
		if s := s.call(http.MethodGet, "/v1/me", "", "", "Cookie: "+v.cookieHeader()); s.status == http.StatusOK {
			t.Error("the session goes on")
		}
	})
	t.Run("health is never limited", func(t *testing.T) {
		for range 50 {
			wantStatus(t, s.call(http.MethodGet, "/health/liveness", "", ""), http.StatusOK)
			wantStatus(t, s.call(http.MethodGet, "/health/readiness", "", ""), http.StatusOK)
		}
	})
}
