//go:build keycloak

package keycloak

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/miniserversystem/miniserver/infra/dev/browser"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

const (
	testState = "the-state"
	testNonce = "the-nonce"
)

// webClient stands for the gateway.
type webClient struct {
	*httptest.Server
	mutex  sync.Mutex
	logout []string // the logout tokens that arrived
}

func newWebClient(listener net.Listener) *webClient {
	c := &webClient{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login/callback", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /logout/backchannel", func(_ http.ResponseWriter, r *http.Request) {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.logout = append(c.logout, r.PostFormValue("logout_token"))
	})
	c.Server = httptest.NewUnstartedServer(mux)
	c.Listener.Close()
	c.Listener = listener
	c.Start()
	return c
}

func (c *webClient) logoutTokens() []string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return append([]string(nil), c.logout...)
}

// realm is one issuer as its clients see it.
type realm struct {
	url      string
	provider *oidc.Provider
}

// realms returns Keycloak and the development issuer.
func realms(t *testing.T) (keycloak, develop realm) {
	t.Helper()
	shared.once.Do(func() { shared.err = startShared() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return newRealm(t, shared.keycloak.Issuer()), newRealm(t, shared.develop.URL())
}

func newRealm(t *testing.T, url string) realm {
	t.Helper()
	provider, err := oidc.NewProvider(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return realm{url, provider}
}

// web is the configuration of the web client.
func (r realm) web() *oauth2.Config {
	return &oauth2.Config{
		ClientID: issuer.WebClientID, ClientSecret: issuer.WebClientSecret, Endpoint: r.provider.Endpoint(),
		RedirectURL: shared.client.URL + "/login/callback", Scopes: []string{oidc.ScopeOpenID, "profile", "email"},
	}
}

// signIn goes through the login form and redeems the code.
func (r realm) signIn(t *testing.T, b *browser.Browser, username, password string, options ...oauth2.AuthCodeOption) (*oauth2.Token, error) {
	t.Helper()
	verifier := oauth2.GenerateVerifier()
	options = append(options, oidc.Nonce(testNonce), oauth2.S256ChallengeOption(verifier))
	answer, err := b.SignIn(r.web().AuthCodeURL(testState, options...), username, password)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	query := answer.Request.URL.Query()
	if answer.Request.URL.Path != "/login/callback" || query.Get("state") != testState {
		t.Fatalf("ended at %s", answer.Request.URL)
	}
	return r.web().Exchange(t.Context(), query.Get("code"), oauth2.VerifierOption(verifier))
}

func (r realm) refresh(t *testing.T, token string) (*oauth2.Token, error) {
	t.Helper()
	return r.web().TokenSource(t.Context(), &oauth2.Token{RefreshToken: token}).Token()
}

// wantRefusal checks the OAuth error of a token request.
func wantRefusal(t *testing.T, what string, err error, code string) {
	t.Helper()
	var refusal *oauth2.RetrieveError
	if !errors.As(err, &refusal) || refusal.ErrorCode != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}
