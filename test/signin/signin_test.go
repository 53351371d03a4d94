package signin_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
	"github.com/miniserversystem/miniserver/test/system"
)

// startProvider starts an issuer that redirects to gateway and, with backChannel, sends
// it logout tokens.
type startProvider func(t *testing.T, gateway string, lifetime time.Duration, backChannel bool) system.Provider

// signInSuite tests everything that a browser does, with either issuer.
func signInSuite(t *testing.T, begin startProvider) {
	// One address for all: an issuer knows its clients' addresses.
	first := kit.Listen(t)
	address := first.Addr().String()
	kit.Must(t, first.Close())
	open := func(t *testing.T, lifetime time.Duration, backChannel bool, environment ...string) (*system.System, system.Provider) {
		t.Helper()
		listener, err := net.Listen("tcp", address)
		kit.Must(t, err)
		p := begin(t, "http://"+listener.Addr().String(), lifetime, backChannel)
		return system.StartOn(t, listener, append([]string{"OIDC_ISSUER=" + p.URL(), "WAKES=false"}, environment...)...), p
	}

	t.Run("sign in and out", func(t *testing.T) {
		s, _ := open(t, system.SignInLifetime, true)
		alice := s.Person()
		system.WantProblem(t, alice.Do(http.MethodGet, "/v1/me", ""), http.StatusUnauthorized, "token_missing")
		alice.SignIn("alice", "/docs?from=here")
		me := alice.Do(http.MethodGet, "/v1/me", "")
		system.WantStatus(t, me, http.StatusOK)
		account := me.JSON(t)
		if id, _ := account["user_id"].(string); !strings.HasPrefix(id, "u_") {
			t.Errorf("user_id %q, want the prefix u_", id)
		}
		if roles, _ := json.Marshal(account["roles"]); string(roles) != `["player"]` {
			t.Errorf("alice's roles are %s, want [\"player\"]", roles)
		}
		// Another browser of the same person: the same account, another session.
		again := s.Person()
		again.SignIn("alice", "/")
		if other := again.Do(http.MethodGet, "/v1/me", "").JSON(t); other["user_id"] != account["user_id"] {
			t.Errorf("one person has the user ids %v and %v", other["user_id"], account["user_id"])
		}
		if again.Cookie() == alice.Cookie() || len(alice.Cookie()) < 22 {
			t.Error("the session cookie is not a new one, or too short")
		}
		olga := s.Person()
		olga.SignIn("olga", "/")
		if roles, _ := json.Marshal(olga.Do(http.MethodGet, "/v1/me", "").JSON(t)["roles"]); string(roles) != `["operator","player"]` {
			t.Errorf("olga's roles are %s, want [\"operator\",\"player\"]", roles)
		}

		old := alice.Cookie()
		system.WantProblem(t, alice.Do(http.MethodPost, "/logout", ""), http.StatusForbidden, "csrf_refused")
		system.WantStatus(t, alice.Do(http.MethodGet, "/v1/me", ""), http.StatusOK)
		system.WantStatus(t, alice.Do(http.MethodPost, "/logout", "", system.CSRF), http.StatusNoContent)
		if alice.Cookie() != "" {
			t.Error("the session cookie is still there")
		}
		kept := s.Call(http.MethodGet, "/v1/me", "", "", "Cookie: miniserver_session="+old)
		system.WantProblem(t, kept, http.StatusUnauthorized, "session_missing")
		system.WantStatus(t, alice.Do(http.MethodPost, "/logout", "", system.CSRF), http.StatusNoContent)
		system.WantStatus(t, again.Do(http.MethodGet, "/v1/me", ""), http.StatusOK)
		// The session at the issuer has ended too: it asks for the password again.
		response, err := alice.Browser.Client().Get(s.URL + "/login")
		kit.Must(t, err)
		defer response.Body.Close()
		if page, _ := io.ReadAll(response.Body); !strings.Contains(string(page), `name="password"`) {
			t.Errorf("after signing out, /login led to %s", response.Request.URL)
		}
	})

	t.Run("tabs", func(t *testing.T) {
		s, _ := open(t, system.SignInLifetime, true)
		alice := s.Person()
		// All sign-ins begin before the first ends, and end in reverse order.
		const tabs = 4
		var begun []string
		for range tabs {
			begun = append(begun, alice.Begin("/docs"))
		}
		for _, where := range slices.Backward(begun) {
			response, err := alice.Browser.SignIn(where, "alice", "alice")
			kit.Must(t, err)
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK || response.Request.URL.String() != s.URL+"/docs" {
				t.Errorf("the sign-in ended with %s at %s", response.Status, response.Request.URL)
			}
		}
		system.WantStatus(t, alice.Do(http.MethodGet, "/v1/me", ""), http.StatusOK)
	})

	t.Run("renewal, and the end at the issuer", func(t *testing.T) {
		s, p := open(t, system.SignInLifetime, false)
		alice := s.Person()
		alice.SignIn("alice", "/")
		signedIn := time.Now()
		cookie := "Cookie: miniserver_session=" + alice.Cookie()
		kit.Pause(time.Until(signedIn.Add(system.RenewalDue))) // nothing signals that renewal is due
		statuses := make([]int, 24)
		var group sync.WaitGroup
		for i := range statuses {
			group.Go(func() { statuses[i] = s.Call(http.MethodGet, "/v1/me", "", "", cookie).Status })
		}
		group.Wait()
		if slices.ContainsFunc(statuses, func(status int) bool { return status != http.StatusOK }) {
			t.Fatalf("simultaneous requests when the token was due were answered %v", statuses)
		}
		// The gateway gets no logout token; it finds out at the next renewal.
		kit.Must(t, p.EndSessions("alice"))
		kit.Eventually(t, "the session ends", func() bool {
			return s.Call(http.MethodGet, "/v1/me", "", "", cookie).Status == http.StatusUnauthorized
		})
	})

	t.Run("back-channel sign-out", func(t *testing.T) {
		s, p := open(t, time.Minute, true)
		alice, bob := s.Person(), s.Person()
		alice.SignIn("alice", "/")
		bob.SignIn("bob", "/")
		kit.Must(t, p.EndSessions("alice"))
		kit.Within(t, 5*time.Second, "the session ends", func() bool {
			return alice.Do(http.MethodGet, "/v1/me", "").Status == http.StatusUnauthorized
		})
		system.WantStatus(t, bob.Do(http.MethodGet, "/v1/me", ""), http.StatusOK)
		alice.SignIn("alice", "/")
	})

	t.Run("keys are rotated", func(t *testing.T) {
		s, p := open(t, system.SignInLifetime, true)
		alice := s.Person()
		alice.SignIn("alice", "/")
		signedIn := time.Now()
		writer := identity.Token(t, p.URL(), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
		s.Writer = writer
		system.WantStatus(t, s.Grant("k1", "u_1", "item1"), http.StatusOK)
		kit.Must(t, p.RotateKey())
		// Old tokens stay valid, new ones are valid at once.
		system.WantStatus(t, s.Grant("k2", "u_1", "item1"), http.StatusOK)
		s.Writer = identity.Token(t, p.URL(), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
		system.WantStatus(t, s.Grant("k3", "u_1", "item1"), http.StatusOK)
		bob := s.Person()
		bob.SignIn("bob", "/")
		system.WantStatus(t, alice.Do(http.MethodGet, "/v1/me", ""), http.StatusOK)
		// Rotated again so soon that no caller's token has them fetched, what the issuer
		// itself sends does: it ends no session, and no sign-in.
		kit.Must(t, p.RotateKey())
		kit.Pause(time.Until(signedIn.Add(system.RenewalDue)))
		system.WantStatus(t, alice.Do(http.MethodGet, "/v1/me", ""), http.StatusOK)
		kit.Must(t, p.RotateKey())
		s.Person().SignIn("bob", "/")
	})
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	signInSuite(t, system.StartIssuer)
}

// Tabs that sign in at the same moment all succeed. (Keycloak takes one password at a
// time.)
func TestTabsAtOnce(t *testing.T) {
	t.Parallel()
	listener := kit.Listen(t)
	p := system.StartIssuer(t, "http://"+listener.Addr().String(), time.Minute, true)
	s := system.StartOn(t, listener, "OIDC_ISSUER="+p.URL(), "WAKES=false")
	alice := s.Person()
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			response, err := alice.Browser.SignIn(s.URL+"/login?return_to=/docs", "alice", "alice")
			if err != nil {
				t.Errorf("tab %d: %v", i, err)
				return
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK || response.Request.URL.Path != "/docs" {
				t.Errorf("tab %d ended with %s at %s", i, response.Status, response.Request.URL)
			}
		})
	}
	group.Wait()
	system.WantStatus(t, alice.Do(http.MethodGet, "/v1/me", ""), http.StatusOK)
}
