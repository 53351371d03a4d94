//go:build keycloak

package keycloak

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/miniserversystem/miniserver/infra/dev/browser"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

// addUser makes a user of the test's own, as an administrator would, and removes it
// when the test ends.
func addUser(t *testing.T) (username, password string) {
	t.Helper()
	realms(t)
	admin := shared.keycloak.admin
	username, password = strings.ToLower(t.Name()), "password"
	err := admin.call(t.Context(), http.MethodPost, "/users", map[string]any{
		"username": username, "enabled": true, "firstName": "Test", "lastName": "Example", "email": username + "@example.test",
		"credentials": []map[string]any{{"type": "password", "value": password, "temporary": false}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		id, err := admin.userID(ctx, username)
		if err == nil {
			err = admin.call(ctx, http.MethodDelete, "/users/"+id, nil, nil)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return username, password
}

func TestAddedUserIsAPlayer(t *testing.T) {
	t.Parallel()
	keycloak, _ := realms(t)
	username, password := addUser(t)
	token, err := keycloak.signIn(t, browser.New(), username, password)
	if err != nil {
		t.Fatal(err)
	}
	// Keycloak also lists the default role itself.
	got := keycloak.claims(t, token.AccessToken, issuer.DefaultAudience)["realm_access"]
	if want := map[string]any{"roles": []any{"default-roles-miniserver", issuer.RolePlayer}}; !reflect.DeepEqual(got, want) {
		t.Errorf("roles are %v, want %v", got, want)
	}
}

// A client that sends a used refresh token may be a thief.
func TestRefreshTokenIsGoodOnce(t *testing.T) {
	t.Parallel()
	keycloak, _ := realms(t)
	username, password := addUser(t)
	first, err := keycloak.signIn(t, browser.New(), username, password)
	if err != nil {
		t.Fatal(err)
	}
	second, err := keycloak.refresh(t, first.RefreshToken)
	if err != nil {
		t.Fatal(err)
	}
	_, err = keycloak.refresh(t, first.RefreshToken)
	wantRefusal(t, "the rotated token", err, "invalid_grant")
	_, err = keycloak.refresh(t, second.RefreshToken)
	wantRefusal(t, "the newest token after that", err, "invalid_grant")
}

func TestTooManyWrongPasswords(t *testing.T) {
	t.Parallel()
	keycloak, _ := realms(t)
	username, password := addUser(t)
	id, err := shared.keycloak.admin.userID(t.Context(), username)
	if err != nil {
		t.Fatal(err)
	}
	const failureFactor = 10 // realm.json
	for range failureFactor {
		if _, err := keycloak.signIn(t, browser.New(), username, "wrong"); !errors.Is(err, browser.ErrRefused) {
			t.Fatalf("a wrong password: %v, want ErrRefused", err)
		}
	}
	// Keycloak counts after it has answered.
	var state struct{ Disabled bool }
	for deadline := time.Now().Add(askTimeout); !state.Disabled && time.Now().Before(deadline); {
		if err := shared.keycloak.admin.call(t.Context(), http.MethodGet, "/attack-detection/brute-force/users/"+id, nil, &state); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := keycloak.signIn(t, browser.New(), username, password); !errors.Is(err, browser.ErrRefused) {
		t.Errorf("the right password after %d wrong ones: %v", failureFactor, err)
	}
}

func TestAuthorizationRefused(t *testing.T) {
	t.Parallel()
	keycloak, _ := realms(t)
	s256 := oauth2.S256ChallengeOption(oauth2.GenerateVerifier())
	for name, test := range map[string]struct {
		options []oauth2.AuthCodeOption
		code    string
	}{
		"no PKCE":    {nil, "invalid_request"},
		"plain PKCE": {[]oauth2.AuthCodeOption{oauth2.SetAuthURLParam("code_challenge", oauth2.GenerateVerifier()), oauth2.SetAuthURLParam("code_challenge_method", "plain")}, "invalid_request"},
		"implicit":   {[]oauth2.AuthCodeOption{s256, oauth2.SetAuthURLParam("response_type", "token")}, "unauthorized_client"},
		"silent":     {[]oauth2.AuthCodeOption{s256, oauth2.SetAuthURLParam("prompt", "none")}, "login_required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, err := browser.New().SignIn(keycloak.web().AuthCodeURL(testState, test.options...), "alice", "alice")
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			query, err := url.ParseQuery(answer.Request.URL.RawQuery + answer.Request.URL.Fragment)
			if err != nil || answer.Request.URL.Path != "/login/callback" || query.Get("error") != test.code || query.Has("code") || query.Has("access_token") {
				t.Errorf("ended at %s", answer.Request.URL)
			}
		})
	}
	for _, uri := range []string{shared.client.URL + "/", shared.client.URL + "/login/callback/x", shared.client.URL + "/login/callback?x=1", "http://127.0.0.1:8080/login/callback"} {
		config := keycloak.web()
		config.RedirectURL = uri
		answer, err := browser.New().SignIn(config.AuthCodeURL(testState, s256), "alice", "alice")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest || !strings.HasPrefix(answer.Request.URL.String(), keycloak.url) {
			t.Errorf("%s: ended at %s with %s", uri, answer.Request.URL, answer.Status)
		}
	}
}

func TestPasswordGrantRefused(t *testing.T) {
	t.Parallel()
	keycloak, _ := realms(t)
	for id, secret := range map[string]string{issuer.WebClientID: issuer.WebClientSecret, issuer.OpsClientID: issuer.OpsClientSecret, "admin-cli": ""} {
		config := oauth2.Config{ClientID: id, ClientSecret: secret, Endpoint: keycloak.provider.Endpoint()}
		if _, err := config.PasswordCredentialsToken(t.Context(), "alice", "alice"); err == nil {
			t.Errorf("%s gets a token for a password", id)
		}
	}
}
