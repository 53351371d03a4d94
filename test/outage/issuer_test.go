package outage_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
	"github.com/miniserversystem/miniserver/test/system"
)

// startSeverableIssuer starts a development issuer that clients reach through a link.
func startSeverableIssuer(t testing.TB, gateway string, lifetime time.Duration) (*issuer.Server, *kit.Link) {
	t.Helper()
	listener := kit.Listen(t)
	link, address := kit.Through(t, "http://"+listener.Addr().String())
	server, err := issuer.Start(context.Background(), listener, issuer.Options{
		URL: address, RedirectURIs: []string{gateway + "/login/callback"}, AccessTokenLifetime: lifetime,
	})
	kit.Must(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	return server, link
}

// The issuer is away, or hangs, when sessions are due for renewal: they stay valid, and
// only the request that renews waits for it.
func TestRenewalWithoutIssuer(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"refuses", "hangs"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			listener := kit.Listen(t)
			people, toIssuer := startSeverableIssuer(t, "http://"+listener.Addr().String(), system.SignInLifetime)
			s := system.StartOn(t, listener, "OIDC_ISSUER="+people.URL(), "WAKES=false")
			alice := s.Person()
			alice.SignIn("alice", "/")
			signedIn := time.Now()
			cookie := "Cookie: miniserver_session=" + alice.Cookie()
			atMost := 2 * time.Second
			if how == "hangs" {
				toIssuer.Hang()
				atMost = 8 * time.Second // more than session.RenewTimeout
			} else {
				toIssuer.Cut()
			}
			kit.Pause(time.Until(signedIn.Add(system.RenewalDue))) // nothing signals that renewal is due
			slow := 0
			for round := range 2 {
				began := time.Now()
				statuses, took := make([]int, 12), make([]time.Duration, 12)
				system.AtOnce(len(statuses), func(i int) {
					statuses[i] = s.Call(http.MethodGet, system.MePath, "", "", cookie).Status
					took[i] = time.Since(began)
				})
				slices.Sort(took)
				t.Logf("round %d: fastest %s, slowest %s", round, took[0], took[len(took)-1])
				if slices.ContainsFunc(statuses, func(status int) bool { return status != http.StatusOK }) {
					t.Fatalf("round %d: answered %v, want 200", round, statuses)
				}
				if took[len(took)-1] > atMost {
					t.Errorf("round %d: the slowest request took %s", round, took[len(took)-1])
				}
				if took[len(took)-1] > time.Second {
					slow++
				}
			}
			if slow > 1 {
				t.Error("requests after the attempt to renew wait too")
			}
			toIssuer.Mend()
			system.WantStatus(t, s.Call(http.MethodGet, system.MePath, "", "", cookie), http.StatusOK)
		})
	}
}

// The issuer is away from the beginning: every caller is answered 503 with Retry-After
// until it is there.
func TestIssuerComesLater(t *testing.T) {
	t.Parallel()
	listener := kit.Listen(t)
	people, toIssuer := startSeverableIssuer(t, "http://"+listener.Addr().String(), 10*time.Minute)
	token := identity.Token(t, people.URL(), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
	toIssuer.Cut()
	s := system.StartOn(t, listener, "OIDC_ISSUER="+people.URL(), "WAKES=false")
	nobody := s.Person()
	for range 2 {
		system.WantAway(t, s.Call(http.MethodGet, system.MePath, token, ""))
		system.WantAway(t, nobody.Once(http.MethodGet, "/login"))
	}
	system.WantStatus(t, s.Call(http.MethodGet, "/", "", ""), http.StatusOK)
	system.WantProblem(t, s.Call(http.MethodGet, system.MePath, "", ""), http.StatusUnauthorized, "token_missing")
	page := nobody.Once(http.MethodGet, "/login", "Accept: text/html")
	if page.Status != http.StatusServiceUnavailable || !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") || page.Header.Get("Retry-After") == "" {
		t.Errorf("a browser is answered %d %v, want a page with 503 and Retry-After", page.Status, page.Header)
	}
	toIssuer.Mend()
	kit.Eventually(t, "tokens are accepted", func() bool { return s.Call(http.MethodGet, system.MePath, token, "").Status == http.StatusOK })
	nobody.SignIn("alice", "/")
}

// Redis is away when a browser comes back from the issuer: when it sends the same request
// again, it is signed in.
func TestSignInGoesOnAfterRedis(t *testing.T) {
	t.Parallel()
	listener := kit.Listen(t)
	people := system.StartIssuer(t, "http://"+listener.Addr().String(), time.Minute, false)
	s := system.StartOn(t, listener, "OIDC_ISSUER="+people.URL(), "WAKES=false")
	alice := s.Person()
	back := alice.AtCallback("alice")
	kit.Must(t, s.Redis.Stop())
	system.WantAway(t, alice.Once(http.MethodGet, back))
	s.Redis = kit.StartRedis(t, s.RedisDir)
	kit.Eventually(t, "Redis is back", func() bool { return s.Person().Once(http.MethodGet, "/login").Status == http.StatusSeeOther })
	if a := alice.Once(http.MethodGet, back); a.Status != http.StatusSeeOther {
		t.Errorf("the same request again is answered %d %s, want 303", a.Status, a.Body)
	}
}
