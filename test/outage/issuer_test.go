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

// startSeverableIssuer starts a development issuer that clients reach by a link.
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

// The issuer is away when sessions are due for renewal: they go on, and only who
// renews waits for it; also when it hangs.
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
				atMost = 8 * time.Second // session.RenewTimeout, and some
			} else {
				toIssuer.Cut()
			}
			kit.Pause(time.Until(signedIn.Add(system.RenewalDue))) // the clock is the signal
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
					t.Fatalf("round %d: %v", round, statuses)
				}
				if took[len(took)-1] > atMost {
					t.Errorf("round %d: %s", round, took[len(took)-1])
				}
				if took[len(took)-1] > time.Second {
					slow++
				}
			}
			if slow > 1 {
				t.Error("who comes after the one that tried to renew waits, too")
			}
			toIssuer.Mend()
			system.WantStatus(t, s.Call(http.MethodGet, system.MePath, "", "", cookie), http.StatusOK)
		})
	}
}

// The issuer is away from the beginning: nobody can be let in, all are told to come
// back, and it works when it is there.
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
		t.Errorf("a browser gets %d %v", page.Status, page.Header)
	}
	toIssuer.Mend()
	kit.Eventually(t, "tokens are good", func() bool { return s.Call(http.MethodGet, system.MePath, token, "").Status == http.StatusOK })
	nobody.SignIn("alice", "/")
}

// Redis is away at the moment in which somebody comes back from the issuer: when
// they send the same request again, as they are told, they are signed in.
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
		t.Errorf("the same request again: %d %s", a.Status, a.Body)
	}
}
