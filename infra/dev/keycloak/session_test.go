//go:build keycloak

package keycloak

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/miniserversystem/miniserver/infra/dev/browser"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
)

// authTime returns when the user last authenticated.
func (r realm) authTime(t *testing.T, token *oauth2.Token) int64 {
	t.Helper()
	var seen int64
	for raw, audience := range map[string]string{token.AccessToken: issuer.DefaultAudience, idToken(t, token): issuer.WebClientID} {
		verified, err := r.provider.Verifier(&oidc.Config{ClientID: audience}).Verify(t.Context(), raw)
		if err != nil {
			t.Fatal(err)
		}
		var claims struct {
			AuthTime int64 `json:"auth_time"`
		}
		if err := verified.Claims(&claims); err != nil || claims.AuthTime == 0 || seen != 0 && seen != claims.AuthTime {
			t.Fatalf("auth_time %d and %d, %v", seen, claims.AuthTime, err)
		}
		seen = claims.AuthTime
	}
	return seen
}

// Keycloak remembers users: a second sign-in shows no form and does not change auth_time,
// unless prompt=login asks for it.
func TestProvingAgain(t *testing.T) {
	t.Parallel()
	keycloak, _ := realms(t)
	username, password := addUser(t)
	b := browser.New()
	first, err := keycloak.signIn(t, b, username, password)
	if err != nil {
		t.Fatal(err)
	}
	began := keycloak.authTime(t, first)
	kit.Eventually(t, "a later auth_time, which is in seconds", func() bool { return time.Now().Unix() > began })
	remembered, err := keycloak.signIn(t, b, username, "not asked for")
	if err != nil {
		t.Fatal(err)
	}
	if got := keycloak.authTime(t, remembered); got != began {
		t.Errorf("auth_time moved from %d to %d without a password", began, got)
	}
	again := []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0")}
	if _, err := keycloak.signIn(t, b, username, "wrong", again...); !errors.Is(err, browser.ErrRefused) {
		t.Errorf("prompt=login with a wrong password: %v", err)
	}
	fresh, err := keycloak.signIn(t, b, username, password, again...)
	if err != nil {
		t.Fatal(err)
	}
	if got := keycloak.authTime(t, fresh); got <= began {
		t.Errorf("auth_time is still %d after a new password", got)
	}
}

// The client signs a user out, server to server. Both issuers accept the same forms, and
// notify the client over the back channel, except of a revocation.
func TestClientSignsOut(t *testing.T) {
	t.Parallel()
	keycloak, develop := realms(t)
	username, password := addUser(t)
	for _, issuer := range []struct {
		realm
		username, password string
	}{{keycloak, username, password}, {develop, "alice", "alice"}} {
		var endpoints struct {
			EndSession string `json:"end_session_endpoint"`
			Revocation string `json:"revocation_endpoint"`
		}
		if err := issuer.provider.Claims(&endpoints); err != nil {
			t.Fatal(err)
		}
		for way, form := range map[string]func(*oauth2.Token) (string, url.Values){
			"ID token": func(token *oauth2.Token) (string, url.Values) {
				return endpoints.EndSession, url.Values{"id_token_hint": {idToken(t, token)}}
			},
			"ID token and refresh token": func(token *oauth2.Token) (string, url.Values) {
				return endpoints.EndSession, url.Values{"id_token_hint": {idToken(t, token)}, "refresh_token": {token.RefreshToken}}
			},
			"revocation": func(token *oauth2.Token) (string, url.Values) {
				return endpoints.Revocation, url.Values{"token": {token.RefreshToken}, "token_type_hint": {"refresh_token"}}
			},
		} {
			b := browser.New()
			token, err := issuer.signIn(t, b, issuer.username, issuer.password)
			if err != nil {
				t.Fatal(err)
			}
			target, values := form(token)
			status := postAsWebClient(t, target, values)
			if told := issuer.told(t, issuer.sessionOf(t, token)); told != (target == endpoints.EndSession) {
				t.Errorf("%s, %s: the client was notified: %v", issuer.url, way, told)
			}
			if status >= http.StatusBadRequest {
				t.Errorf("%s, %s: answered %d", issuer.url, way, status)
			}
			_, err = issuer.refresh(t, token.RefreshToken)
			wantRefusal(t, way, err, "invalid_grant")
			if _, err = issuer.signIn(t, b, issuer.username, "wrong"); !errors.Is(err, browser.ErrRefused) {
				t.Errorf("%s, %s: the issuer still remembers the browser: %v", issuer.url, way, err)
			}
		}
	}
}

func postAsWebClient(t *testing.T, target string, form url.Values) (status int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(issuer.WebClientID, issuer.WebClientSecret)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}
