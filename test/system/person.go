package system

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/browser"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
)

// BackChannel sends a logout token as an issuer does: with no cookie and no X-CSRF.
func (s *System) BackChannel(token string) Answer {
	s.T.Helper()
	return s.Call(http.MethodPost, BackChannelPath, "", url.Values{"logout_token": {token}}.Encode(), formType)
}

// ComesBack signs in at the issuer, stops before the callback, and returns the parameters
// that the browser would bring back.
func (p *Person) ComesBack(name string) (answered url.Values) {
	p.t.Helper()
	client := p.Browser.Client()
	follow := client.CheckRedirect
	defer func() { client.CheckRedirect = follow }()
	client.CheckRedirect = func(next *http.Request, before []*http.Request) error {
		if next.URL.Path == "/login/callback" {
			answered = next.URL.Query()
			return http.ErrNoLocation // any error stops it
		}
		return follow(next, before)
	}
	response, err := p.Browser.SignIn(p.System.URL+"/login?again=true&return_to=/docs", name, name)
	if err == nil {
		_ = response.Body.Close()
	}
	if answered.Get("code") == "" {
		p.t.Fatalf("the issuer gave no code for %s: %v", name, err)
	}
	return answered
}

// Once sends a request with the browser's cookies and follows no redirect.
func (p *Person) Once(method, path string, headers ...string) Answer {
	p.t.Helper()
	request, err := http.NewRequest(method, p.System.URL+path, nil)
	kit.Must(p.t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	client := *p.Browser.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return p.System.In(p.t).Read(client.Do(request))
}

// AtCallback signs in at the issuer, and returns the path that the browser is then
// redirected to.
func (p *Person) AtCallback(name string) (path string) {
	p.t.Helper()
	client := p.Browser.Client()
	follow := client.CheckRedirect
	defer func() { client.CheckRedirect = follow }()
	client.CheckRedirect = func(next *http.Request, before []*http.Request) error {
		if next.URL.Path == "/login/callback" {
			path = next.URL.RequestURI()
			return http.ErrUseLastResponse
		}
		return follow(next, before)
	}
	_, err := p.Browser.SignIn(p.System.URL+"/login?return_to=/docs", name, name)
	if path == "" {
		p.t.Fatalf("the issuer did not redirect to the callback: %v", err)
	}
	return path
}

// WantAway wants a 503 that asks the client to retry, keeps the cookie and hides the
// cause.
func WantAway(t testing.TB, a Answer) {
	t.Helper()
	WantProblem(t, a, http.StatusServiceUnavailable, "unavailable")
	if a.Header.Get("Retry-After") == "" {
		t.Error("Retry-After is missing")
	}
	for _, cookie := range a.Header.Values("Set-Cookie") {
		if strings.HasPrefix(cookie, "miniserver_session=") {
			t.Errorf("the session's cookie is changed: %s", cookie)
		}
	}
	if strings.Contains(string(a.Body), "127.0.0.1") || strings.Contains(string(a.Body), "dial") {
		t.Errorf("the answer shows its cause: %s", a.Body)
	}
}

// Provider is an issuer where users sign in: the development issuer, or Keycloak (make
// test-keycloak), which have the same users and clients.
type Provider interface {
	URL() string
	EndSessions(username string) error
	RotateKey() error
}

// SignInLifetime is the lifetime of the suite's access tokens: the gateway renews them
// ten seconds before they expire, so after about one.
const SignInLifetime = 11 * time.Second

// RenewalDue is when a token of SignInLifetime is due for renewal: its times are in whole
// seconds.
const RenewalDue = 2 * time.Second

// devIssuer is the development issuer.
type devIssuer struct{ *issuer.Server }

func (d devIssuer) EndSessions(username string) error {
	if d.Server.EndSessions(context.Background(), username) == 0 {
		return errors.New("no session ended")
	}
	return nil
}

// StartIssuer starts a development issuer that redirects to gateway and, with
// backChannel, sends it logout tokens.
func StartIssuer(t *testing.T, gateway string, lifetime time.Duration, backChannel bool) Provider {
	t.Helper()
	options := issuer.Options{
		RedirectURIs: []string{gateway + "/login/callback"}, PostLogoutRedirectURIs: []string{gateway + "/"},
		AccessTokenLifetime: lifetime,
	}
	if backChannel {
		options.BackChannelLogoutURI = gateway + "/logout/backchannel"
	}
	server, err := issuer.Start(context.Background(), kit.Listen(t), options)
	kit.Must(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	return devIssuer{server}
}

// Person is somebody at a browser.
type Person struct {
	t       testing.TB
	System  *System
	Browser *browser.Browser
}

// Person returns somebody who has not signed in yet.
func (s *System) Person() *Person { return &Person{s.T, s, browser.New()} }

// SignIn signs in, and fails the test unless that ends at path.
func (p *Person) SignIn(name, path string) {
	p.t.Helper()
	response, err := p.Browser.SignIn(p.System.URL+"/login?return_to="+url.QueryEscape(path), name, name)
	kit.Must(p.t, err)
	defer response.Body.Close()
	if got := response.Request.URL.String(); got != p.System.URL+path || response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		p.t.Fatalf("the sign-in ended at %s with %s %s", got, response.Status, body)
	}
}

// Begin begins a sign-in and returns the URL at the issuer where it continues.
func (p *Person) Begin(path string) string {
	p.t.Helper()
	client := *p.Browser.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Get(p.System.URL + "/login?return_to=" + url.QueryEscape(path))
	kit.Must(p.t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusSeeOther {
		p.t.Fatalf("/login answered %s", response.Status)
	}
	return response.Header.Get("Location")
}

// Do sends a request with the browser's cookies.
func (p *Person) Do(method, path, body string, headers ...string) Answer {
	p.t.Helper()
	request, err := http.NewRequest(method, p.System.URL+path, strings.NewReader(body))
	kit.Must(p.t, err)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	return p.System.In(p.t).Read(p.Browser.Client().Do(request))
}

// Cookie is the value of the session's cookie, "" without one.
func (p *Person) Cookie() string {
	p.t.Helper()
	u, err := url.Parse(p.System.URL)
	kit.Must(p.t, err)
	for _, c := range p.Browser.Client().Jar.Cookies(u) {
		if c.Name == "miniserver_session" {
			return c.Value
		}
	}
	return ""
}

// CSRF is the header that all requests of our own pages carry.
const CSRF = "X-CSRF: 1"
