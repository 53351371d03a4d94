//go:build keycloak

package keycloak

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/miniserversystem/miniserver/infra/dev/browser"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

// A user's story, run once per user because EndSessions ends all of a user's sessions:
// sign in, refresh, sign in elsewhere, be signed out by an administrator.
func TestPeople(t *testing.T) {
	t.Parallel()
	keycloak, develop := realms(t)
	for _, user := range issuer.Users() {
		t.Run(user.Username, func(t *testing.T) {
			t.Parallel()
			b := browser.New()
			real, err := keycloak.signIn(t, b, user.Username, user.Password)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := develop.signIn(t, browser.New(), user.Username, user.Password)
			if err != nil {
				t.Fatal(err)
			}
			wantSameTokens(t, "sign-in", keycloak, develop, real, ours)

			refreshed, err := keycloak.refresh(t, real.RefreshToken)
			if err != nil {
				t.Fatal(err)
			}
			if ours, err = develop.refresh(t, ours.RefreshToken); err != nil {
				t.Fatal(err)
			}
			wantSameTokens(t, "refresh", keycloak, develop, refreshed, ours)
			if refreshed.RefreshToken == "" || refreshed.RefreshToken == real.RefreshToken {
				t.Error("the refresh token was not rotated")
			}
			session := keycloak.sessionOf(t, real)
			if keycloak.sessionOf(t, refreshed) != session {
				t.Error("a refresh began another session")
			}

			if keycloak.told(t, session) {
				t.Error("the client was notified before the session ended")
			}
			if err := shared.keycloak.EndSessions(t.Context(), user.Username); err != nil {
				t.Fatal(err)
			}
			if !keycloak.told(t, session) { // before EndSessions returned
				t.Error("no logout token")
			}
			_, err = keycloak.refresh(t, refreshed.RefreshToken)
			wantRefusal(t, "a refresh after the end", err, "invalid_grant")
			if _, err = keycloak.signIn(t, b, user.Username, "wrong"); !errors.Is(err, browser.ErrRefused) {
				t.Errorf("the browser is still signed in: %v", err)
			}
		})
	}
}

func wantSameTokens(t *testing.T, what string, keycloak, develop realm, real, ours *oauth2.Token) {
	t.Helper()
	access, id := keycloak.claims(t, real.AccessToken, issuer.DefaultAudience), keycloak.claims(t, idToken(t, real), issuer.WebClientID)
	t.Logf("%s: access token %v, ID token %v", what, access, id)
	for _, claim := range []string{"sid", "auth_time"} {
		if access[claim] == nil {
			t.Errorf("%s: no %s in the access token", what, claim)
		}
	}
	wantSame(t, what+": access token", access, develop.claims(t, ours.AccessToken, issuer.DefaultAudience))
	wantSame(t, what+": ID token", id, develop.claims(t, idToken(t, ours), issuer.WebClientID))
	if lifetime := time.Until(real.Expiry); lifetime < 4*time.Minute || lifetime > 5*time.Minute {
		t.Errorf("%s: the access token lives %v", what, lifetime)
	}
}

// sessionOf returns the sid of an ID token.
func (r realm) sessionOf(t *testing.T, token *oauth2.Token) string {
	t.Helper()
	verified, err := r.provider.Verifier(&oidc.Config{ClientID: issuer.WebClientID}).Verify(t.Context(), idToken(t, token))
	var claims struct {
		Session string `json:"sid"`
	}
	if err == nil {
		err = verified.Claims(&claims)
	}
	if err != nil || claims.Session == "" {
		t.Fatalf("no session: %v", err)
	}
	return claims.Session
}

// told reports whether a valid logout token of the session has arrived.
func (r realm) told(t *testing.T, session string) bool {
	t.Helper()
	verifier := r.provider.Verifier(&oidc.Config{ClientID: issuer.WebClientID})
	return slices.ContainsFunc(shared.client.logoutTokens(), func(raw string) bool {
		logout, err := verifier.VerifyLogout(t.Context(), raw) // fails for another issuer's
		return err == nil && logout.SessionID == session
	})
}
