package functions_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/browser"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
)

// provider is an issuer that people sign in at: the development issuer, or
// Keycloak (make test-keycloak), which have the same people and clients.
type provider interface {
	URL() string
	EndSessions(username string) error
	RotateKey() error
}

// startProvider starts an issuer that sends people back to gateway. It tells the
// gateway about sessions that end, if told is true.
type startProvider func(t *testing.T, gateway string, lifetime time.Duration, told bool) provider

// signInLifetime is how long access tokens of the suite live: the gateway renews
// them ten seconds before their end, so after about two.
const signInLifetime = 12 * time.Second

// devIssuer is the development issuer.
type devIssuer struct{ *issuer.Server }

func (d devIssuer) EndSessions(username string) error {
	if d.Server.EndSessions(context.Background(), username) == 0 {
		return errors.New("no session ended")
	}
	return nil
}

func startDevIssuer(t *testing.T, gateway string, lifetime time.Duration, told bool) provider {
	t.Helper()
	options := issuer.Options{
		RedirectURIs: []string{gateway + "/login/callback"}, PostLogoutRedirectURIs: []string{gateway + "/"},
		AccessTokenLifetime: lifetime,
	}
	if told {
		options.BackChannelLogoutURI = gateway + "/logout/backchannel"
	}
	server, err := issuer.Start(context.Background(), kit.Listen(t), options)
	must(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	return devIssuer{server}
}

// person is somebody at a browser.
type person struct {
	t       testing.TB
	system  *system
	browser *browser.Browser
}

func (s *system) person() *person { return &person{s.t, s, browser.New()} }

// signIn signs in and wants to end at path.
func (p *person) signIn(name, path string) {
	p.t.Helper()
	response, err := p.browser.SignIn(p.system.url+"/login?return_to="+url.QueryEscape(path), name, name)
	must(p.t, err)
	defer response.Body.Close()
	if got := response.Request.URL.String(); got != p.system.url+path || response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		p.t.Fatalf("signed in at %s: %s %s", got, response.Status, body)
	}
}

// begin begins a sign-in and returns where the issuer goes on with it.
func (p *person) begin(path string) string {
	p.t.Helper()
	client := *p.browser.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Get(p.system.url + "/login?return_to=" + url.QueryEscape(path))
	must(p.t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusSeeOther {
		p.t.Fatalf("/login answered %s", response.Status)
	}
	return response.Header.Get("Location")
}

// do sends a request with the browser's cookies.
func (p *person) do(method, path, body string, headers ...string) answer {
	p.t.Helper()
	request, err := http.NewRequest(method, p.system.url+path, strings.NewReader(body))
	must(p.t, err)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	response, err := p.browser.Client().Do(request)
	must(p.t, err)
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	must(p.t, err)
	return answer{response.StatusCode, response.Header, read}
}

func (p *person) cookie() string {
	p.t.Helper()
	u, err := url.Parse(p.system.url)
	must(p.t, err)
	for _, c := range p.browser.Client().Jar.Cookies(u) {
		if c.Name == "miniserver_session" {
			return c.Value
		}
	}
	return ""
}

const csrf = "X-CSRF: 1"

// signInSuite is everything that a browser does, with either issuer.
func signInSuite(t *testing.T, begin startProvider) {
	// One address for all: an issuer knows where people come from.
	first := kit.Listen(t)
	address := first.Addr().String()
	must(t, first.Close())
	open := func(t *testing.T, lifetime time.Duration, told bool, environment ...string) (*system, provider) {
		t.Helper()
		listener, err := net.Listen("tcp", address)
		must(t, err)
		p := begin(t, "http://"+listener.Addr().String(), lifetime, told)
		return start(t, listener, append([]string{"OIDC_ISSUER=" + p.URL(), "WAKES=false"}, environment...)...), p
	}

	t.Run("sign in and out", func(t *testing.T) {
		s, _ := open(t, signInLifetime, true)
		alice := s.person()
		wantProblem(t, alice.do(http.MethodGet, "/v1/me", ""), http.StatusUnauthorized, "token_missing")
		alice.signIn("alice", "/docs?from=here")
		me := alice.do(http.MethodGet, "/v1/me", "")
		wantStatus(t, me, http.StatusOK)
		account := me.json(t)
		if id, _ := account["user_id"].(string); !strings.HasPrefix(id, "u_") {
			t.Errorf("user_id %q", id)
		}
		if roles, _ := json.Marshal(account["roles"]); string(roles) != `["player"]` {
			t.Errorf("roles of alice: %s", roles)
		}
		// The same person, another browser: the same account, another session.
		again := s.person()
		again.signIn("alice", "/")
		if other := again.do(http.MethodGet, "/v1/me", "").json(t); other["user_id"] != account["user_id"] {
			t.Errorf("%v and %v", other["user_id"], account["user_id"])
		}
		if again.cookie() == alice.cookie() || len(alice.cookie()) < 22 {
			t.Error("a session cookie that is not new and long")
		}
		olga := s.person()
		olga.signIn("olga", "/")
		if roles, _ := json.Marshal(olga.do(http.MethodGet, "/v1/me", "").json(t)["roles"]); string(roles) != `["operator","player"]` {
			t.Errorf("roles of olga: %s", roles)
		}

		old := alice.cookie()
		wantProblem(t, alice.do(http.MethodPost, "/logout", ""), http.StatusForbidden, "csrf_refused")
		wantStatus(t, alice.do(http.MethodGet, "/v1/me", ""), http.StatusOK)
		wantStatus(t, alice.do(http.MethodPost, "/logout", "", csrf), http.StatusNoContent)
		if alice.cookie() != "" {
			t.Error("the cookie is still there")
		}
		kept := s.call(http.MethodGet, "/v1/me", "", "", "Cookie: miniserver_session="+old)
		wantProblem(t, kept, http.StatusUnauthorized, "session_missing")
		wantStatus(t, alice.do(http.MethodPost, "/logout", "", csrf), http.StatusNoContent)
		wantStatus(t, again.do(http.MethodGet, "/v1/me", ""), http.StatusOK)
		// It is over at the issuer, too: it asks for the password again.
		response, err := alice.browser.Client().Get(s.url + "/login")
		must(t, err)
		defer response.Body.Close()
		if page, _ := io.ReadAll(response.Body); !strings.Contains(string(page), `name="password"`) {
			t.Errorf("after signing out, /login led to %s", response.Request.URL)
		}
	})

	t.Run("tabs", func(t *testing.T) {
		s, _ := open(t, signInLifetime, true)
		alice := s.person()
		// All are begun before the first is finished, and finished last to first.
		const tabs = 4
		var begun []string
		for range tabs {
			begun = append(begun, alice.begin("/docs"))
		}
		for _, where := range slices.Backward(begun) {
			response, err := alice.browser.SignIn(where, "alice", "alice")
			must(t, err)
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK || response.Request.URL.String() != s.url+"/docs" {
				t.Errorf("%s at %s", response.Status, response.Request.URL)
			}
		}
		wantStatus(t, alice.do(http.MethodGet, "/v1/me", ""), http.StatusOK)
	})

	t.Run("renewal, and the end at the issuer", func(t *testing.T) {
		s, p := open(t, signInLifetime, false)
		alice := s.person()
		alice.signIn("alice", "/")
		cookie := "Cookie: miniserver_session=" + alice.cookie()
		time.Sleep(3 * time.Second) // the token is due
		statuses := make([]int, 24)
		var group sync.WaitGroup
		for i := range statuses {
			group.Go(func() { statuses[i] = s.call(http.MethodGet, "/v1/me", "", "", cookie).status })
		}
		group.Wait()
		if slices.ContainsFunc(statuses, func(status int) bool { return status != http.StatusOK }) {
			t.Fatalf("at once, when the token was due: %v", statuses)
		}
		// Nobody tells the gateway; it finds out when it renews next.
		must(t, p.EndSessions("alice"))
		eventually(t, signInLifetime, "the session ends", func() bool {
			return s.call(http.MethodGet, "/v1/me", "", "", cookie).status == http.StatusUnauthorized
		})
	})

	t.Run("back-channel sign-out", func(t *testing.T) {
		s, p := open(t, time.Minute, true)
		alice, bob := s.person(), s.person()
		alice.signIn("alice", "/")
		bob.signIn("bob", "/")
		must(t, p.EndSessions("alice"))
		eventually(t, time.Second, "the session ends", func() bool {
			return alice.do(http.MethodGet, "/v1/me", "").status == http.StatusUnauthorized
		})
		wantStatus(t, bob.do(http.MethodGet, "/v1/me", ""), http.StatusOK)
		alice.signIn("alice", "/")
	})

	t.Run("keys are rotated", func(t *testing.T) {
		s, p := open(t, signInLifetime, true)
		alice := s.person()
		alice.signIn("alice", "/")
		writer := identity.Token(t, p.URL(), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
		s.writer = writer
		wantStatus(t, s.grant("k1", "u_1", "item1"), http.StatusOK)
		must(t, p.RotateKey())
		// Old tokens go on, new ones are good at once.
		wantStatus(t, s.grant("k2", "u_1", "item1"), http.StatusOK)
		s.writer = identity.Token(t, p.URL(), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
		wantStatus(t, s.grant("k3", "u_1", "item1"), http.StatusOK)
		bob := s.person()
		bob.signIn("bob", "/")
		wantStatus(t, alice.do(http.MethodGet, "/v1/me", ""), http.StatusOK)
	})
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	signInSuite(t, startDevIssuer)
}

// Tabs that sign in at the very same moment all get in. (Keycloak takes one
// password at a time.)
func TestTabsAtOnce(t *testing.T) {
	t.Parallel()
	listener := kit.Listen(t)
	p := startDevIssuer(t, "http://"+listener.Addr().String(), time.Minute, true)
	s := start(t, listener, "OIDC_ISSUER="+p.URL(), "WAKES=false")
	alice := s.person()
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			response, err := alice.browser.SignIn(s.url+"/login?return_to=/docs", "alice", "alice")
			if err != nil {
				t.Errorf("tab %d: %v", i, err)
				return
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK || response.Request.URL.Path != "/docs" {
				t.Errorf("tab %d: %s at %s", i, response.Status, response.Request.URL)
			}
		})
	}
	group.Wait()
	wantStatus(t, alice.do(http.MethodGet, "/v1/me", ""), http.StatusOK)
}
