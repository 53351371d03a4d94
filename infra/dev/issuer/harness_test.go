package issuer_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

const (
	redirectURI   = "http://127.0.0.1:8080/auth/callback"
	postLogoutURI = "http://127.0.0.1:8080/signed-out"
	testState     = "the-state"
	testNonce     = "the-nonce"
)

// realm is an issuer that listens, and what a client needs to use it.
type realm struct {
	*issuer.Issuer
	url      string
	provider *oidc.Provider
	ctx      context.Context
}

func newRealm(t *testing.T, o issuer.Options) *realm {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	o.URL = "http://" + server.Listener.Addr().String() + o.URL // a path, or nothing
	o.RedirectURIs = []string{redirectURI}
	o.PostLogoutRedirectURIs = []string{postLogoutURI}
	made, err := issuer.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = made.Handler()
	server.Start()
	t.Cleanup(server.Close)
	provider, err := oidc.NewProvider(t.Context(), o.URL)
	if err != nil {
		t.Fatalf("discovery: %v", err)
	}
	return &realm{Issuer: made, url: o.URL, provider: provider, ctx: t.Context()}
}

// web is the configuration of the web client.
func (r *realm) web() *oauth2.Config {
	endpoint := r.provider.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInHeader
	return &oauth2.Config{
		ClientID:     issuer.WebClientID,
		ClientSecret: issuer.WebClientSecret,
		Endpoint:     endpoint,
		RedirectURL:  redirectURI,
		Scopes:       []string{oidc.ScopeOpenID, "profile", "email"},
	}
}

// verify checks a token as a resource server or client would, and returns its
// claims.
func (r *realm) verify(t *testing.T, token, audience string) map[string]any {
	t.Helper()
	verified, err := r.provider.Verifier(&oidc.Config{ClientID: audience}).Verify(r.ctx, token)
	if err != nil {
		t.Fatalf("verify for %s: %v", audience, err)
	}
	var claims map[string]any
	if err := verified.Claims(&claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// browser follows redirects within the issuer and stops at those to a client.
func (r *realm) browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(next *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(next.URL.String(), r.url) {
			return nil
		}
		return http.ErrUseLastResponse
	}}
}

type answer struct {
	*http.Response
	body string
}

// location is where the answer redirects to.
func (a answer) location(t *testing.T) *url.URL {
	t.Helper()
	target, err := a.Location()
	if err != nil {
		t.Fatalf("status %d without a redirect: %s", a.StatusCode, a.body)
	}
	return target
}

func read(t *testing.T, response *http.Response, err error) answer {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response, string(body)}
}

func get(t *testing.T, client *http.Client, target string) answer {
	t.Helper()
	response, err := client.Get(target)
	return read(t, response, err)
}

func post(t *testing.T, client *http.Client, target string, form url.Values) answer {
	t.Helper()
	response, err := client.PostForm(target, form)
	return read(t, response, err)
}

var (
	formAction = regexp.MustCompile(`<form method="post" action="([^"]+)"`)
	formID     = regexp.MustCompile(`name="id" value="([^"]+)"`)
)

// submit fills in the login form on a page.
func (r *realm) submit(t *testing.T, browser *http.Client, page answer, username, password string) answer {
	t.Helper()
	action, id := formAction.FindStringSubmatch(page.body), formID.FindStringSubmatch(page.body)
	if action == nil || id == nil {
		t.Fatalf("no login form, status %d: %s", page.StatusCode, page.body)
	}
	target, err := page.Request.URL.Parse(action[1])
	if err != nil {
		t.Fatal(err)
	}
	return post(t, browser, target.String(), url.Values{
		"id": {id[1]}, "username": {username}, "password": {password},
	})
}

// signIn goes through the login form and returns a code with its verifier.
func (r *realm) signIn(t *testing.T, username string) (code, verifier string) {
	t.Helper()
	verifier = oauth2.GenerateVerifier()
	browser := r.browser(t)
	page := get(t, browser, r.web().AuthCodeURL(testState, oidc.Nonce(testNonce), oauth2.S256ChallengeOption(verifier)))
	target := r.submit(t, browser, page, username, username).location(t)
	if got := target.Scheme + "://" + target.Host + target.Path; got != redirectURI {
		t.Fatalf("redirected to %s", target)
	}
	if got := target.Query().Get("state"); got != testState {
		t.Fatalf("state = %q", got)
	}
	code = target.Query().Get("code")
	if code == "" {
		t.Fatalf("no code in %s", target)
	}
	return code, verifier
}

// tokens signs in and redeems the code.
func (r *realm) tokens(t *testing.T, username string) *oauth2.Token {
	t.Helper()
	code, verifier := r.signIn(t, username)
	token, err := r.web().Exchange(r.ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatalf("exchange: %v", err)
	}
	return token
}

func (r *realm) refresh(token string) (*oauth2.Token, error) {
	return r.web().TokenSource(r.ctx, &oauth2.Token{RefreshToken: token}).Token()
}

// userinfoStatus returns the status of a userinfo request with an access token.
func (r *realm) userinfoStatus(t *testing.T, accessToken string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(r.ctx, http.MethodGet, r.provider.UserInfoEndpoint(), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+accessToken)
	response, err := http.DefaultClient.Do(request)
	return read(t, response, err).StatusCode
}

// wantRefusal checks the OAuth error of a failed token request.
func wantRefusal(t *testing.T, err error, status int, code string) {
	t.Helper()
	refusal, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		t.Fatalf("error = %v, want a refusal", err)
	}
	if refusal.Response.StatusCode != status || refusal.ErrorCode != code {
		t.Errorf("refused with %d %s, want %d %s", refusal.Response.StatusCode, refusal.ErrorCode, status, code)
	}
}

func idToken(t *testing.T, token *oauth2.Token) string {
	t.Helper()
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		t.Fatal("no ID token")
	}
	return raw
}

// segment decodes the header (0) or the claims (1) of a JWT.
func segment(t *testing.T, token string, n int) map[string]any {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[n])
	if err != nil {
		t.Fatal(err)
	}
	var decoded map[string]any
	if err := json.Unmarshal(raw, &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}
