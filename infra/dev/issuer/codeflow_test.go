package issuer_test

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

func TestCodeFlow(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	for _, test := range []struct {
		username, subject string
		roles             []any
	}{
		{"alice", issuer.AliceSubject, []any{"player"}},
		{"olga", issuer.OlgaSubject, []any{"player", "operator"}},
	} {
		t.Run(test.username, func(t *testing.T) {
			t.Parallel()
			token := r.tokens(t, test.username)

			access := r.verify(t, token.AccessToken, issuer.DefaultAudience)
			t.Logf("access token: %v", access)
			wantClaims(t, access, map[string]any{
				"iss": r.url, "sub": test.subject, "aud": []any{"miniserver"},
				"azp": issuer.WebClientID, "client_id": issuer.WebClientID, "typ": "Bearer",
				"scope": "openid profile email", "preferred_username": test.username,
				"realm_access": map[string]any{"roles": test.roles},
			})
			id := r.verify(t, idToken(t, token), issuer.WebClientID)
			t.Logf("ID token: %v", id)
			wantClaims(t, id, map[string]any{
				"iss": r.url, "sub": test.subject, "aud": []any{issuer.WebClientID},
				"azp": issuer.WebClientID, "typ": "ID", "nonce": testNonce,
				"preferred_username": test.username, "email": test.username + "@example.test",
				"email_verified": true, "realm_access": nil, "sid": access["sid"],
			})
			if id["sid"] == nil || id["auth_time"] == nil || access["jti"] == nil {
				t.Error("sid, auth_time or jti is missing")
			}
			if segment(t, token.AccessToken, 0)["alg"] != "RS256" {
				t.Error("not signed with RS256")
			}

			info, err := r.provider.UserInfo(r.ctx, oauth2.StaticTokenSource(token))
			if err != nil {
				t.Fatal(err)
			}
			if info.Subject != test.subject || info.Email != test.username+"@example.test" || !info.EmailVerified {
				t.Errorf("userinfo = %+v", info)
			}
			// An ID token is no access token.
			if got := r.userinfoStatus(t, idToken(t, token)); got != http.StatusUnauthorized {
				t.Errorf("userinfo with an ID token: %d, want 401", got)
			}
		})
	}
}

func wantClaims(t *testing.T, got, want map[string]any) {
	t.Helper()
	for claim, value := range want {
		if !reflect.DeepEqual(got[claim], value) {
			t.Errorf("%s = %v, want %v", claim, got[claim], value)
		}
	}
}

func TestAuthorizationRefused(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	verifier := oauth2.GenerateVerifier()
	for name, test := range map[string]struct {
		options []oauth2.AuthCodeOption
		code    string
	}{
		"no PKCE":    {nil, "invalid_request"},
		"plain PKCE": {[]oauth2.AuthCodeOption{oauth2.SetAuthURLParam("code_challenge", verifier), oauth2.SetAuthURLParam("code_challenge_method", "plain")}, "invalid_request"},
		"no method":  {[]oauth2.AuthCodeOption{oauth2.SetAuthURLParam("code_challenge", verifier)}, "invalid_request"},
		"prompt":     {[]oauth2.AuthCodeOption{oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("prompt", "none")}, "login_required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := get(t, r.browser(t), r.web().AuthCodeURL(testState, test.options...)).location(t)
			if !strings.HasPrefix(target.String(), redirectURI+"?") {
				t.Errorf("redirected to %s", target)
			}
			if q := target.Query(); q.Get("error") != test.code || q.Get("state") != testState || q.Has("code") {
				t.Errorf("query = %v", q)
			}
		})
	}
}

func TestUnregisteredRedirectRefused(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	for _, uri := range []string{"http://127.0.0.1:6666/", redirectURI + "/", redirectURI + "?x=1", ""} {
		config := r.web()
		config.RedirectURL = uri
		got := get(t, r.browser(t), config.AuthCodeURL(testState, oauth2.S256ChallengeOption(oauth2.GenerateVerifier())))
		if got.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: status %d, want 400", uri, got.StatusCode)
		}
	}
}

func TestCodeExchangeRefused(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	for name, test := range map[string]struct {
		change  func(*oauth2.Config)
		options []oauth2.AuthCodeOption
		status  int
		code    string
	}{
		"wrong verifier": {nil, []oauth2.AuthCodeOption{oauth2.VerifierOption(oauth2.GenerateVerifier())}, 400, "invalid_grant"},
		"no verifier":    {nil, nil, 400, "invalid_request"},
		"wrong secret":   {func(c *oauth2.Config) { c.ClientSecret = "x" }, nil, 401, "invalid_client"},
		"no secret":      {func(c *oauth2.Config) { c.ClientSecret = "" }, nil, 401, "invalid_client"},
		"other redirect": {func(c *oauth2.Config) { c.RedirectURL += "x" }, nil, 400, "invalid_grant"},
		"other client": {func(c *oauth2.Config) {
			c.ClientID, c.ClientSecret = issuer.OpsClientID, issuer.OpsClientSecret
		}, nil, 400, "unauthorized_client"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, verifier := r.signIn(t, "bob")
			config := r.web()
			options := test.options
			if test.change != nil {
				test.change(config)
				options = []oauth2.AuthCodeOption{oauth2.VerifierOption(verifier)}
			}
			_, err := config.Exchange(r.ctx, code, options...)
			wantRefusal(t, err, test.status, test.code)
		})
	}
}

func TestCodeReuseRevokes(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	code, verifier := r.signIn(t, "carol")
	token, err := r.web().Exchange(r.ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.web().Exchange(r.ctx, code, oauth2.VerifierOption(verifier))
	wantRefusal(t, err, http.StatusBadRequest, "invalid_grant")
	if got := r.userinfoStatus(t, token.AccessToken); got != http.StatusUnauthorized {
		t.Errorf("the access token still works: %d", got)
	}
	_, err = r.refresh(token.RefreshToken)
	wantRefusal(t, err, http.StatusBadRequest, "invalid_grant")
}

func TestCallbackGivesOneCode(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	browser := r.browser(t)
	page := get(t, browser, r.web().AuthCodeURL(testState, oauth2.S256ChallengeOption(oauth2.GenerateVerifier())))
	id := formID.FindStringSubmatch(page.body)[1]
	callback := r.url + "/authorize/callback?" + url.Values{"id": {id}}.Encode()

	before := get(t, browser, callback).location(t)
	if before.Query().Get("error") != "interaction_required" || before.Query().Has("code") {
		t.Errorf("before the sign-in: %s", before)
	}
	if code := r.submit(t, browser, page, "bob", "bob").location(t).Query().Get("code"); code == "" {
		t.Fatal("no code")
	}
	if after := get(t, browser, callback); after.StatusCode != http.StatusBadRequest {
		t.Errorf("a second callback: %d, want 400", after.StatusCode)
	}
	if again := r.submit(t, browser, page, "bob", "bob"); again.StatusCode != http.StatusBadRequest {
		t.Errorf("a second sign-in: %d, want 400", again.StatusCode)
	}
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	first := r.tokens(t, "alice")
	second, err := r.refresh(first.RefreshToken)
	if err != nil {
		t.Fatal(err)
	}
	if second.RefreshToken == "" || second.RefreshToken == first.RefreshToken {
		t.Fatal("the refresh token was not rotated")
	}
	access := r.verify(t, second.AccessToken, issuer.DefaultAudience)
	wantClaims(t, access, map[string]any{
		"sub": issuer.AliceSubject, "typ": "Bearer", "aud": []any{"miniserver"},
		"sid": segment(t, first.AccessToken, 1)["sid"], "realm_access": map[string]any{"roles": []any{"player"}},
	})
	id := r.verify(t, idToken(t, second), issuer.WebClientID)
	wantClaims(t, id, map[string]any{
		"aud": []any{issuer.WebClientID}, "typ": "ID", "realm_access": nil,
		"auth_time": segment(t, idToken(t, first), 1)["auth_time"],
	})

	// The old token is used again: the whole family is revoked.
	_, err = r.refresh(first.RefreshToken)
	wantRefusal(t, err, http.StatusBadRequest, "invalid_grant")
	_, err = r.refresh(second.RefreshToken)
	wantRefusal(t, err, http.StatusBadRequest, "invalid_grant")
	if got := r.userinfoStatus(t, second.AccessToken); got != http.StatusUnauthorized {
		t.Errorf("the access token still works: %d", got)
	}
}

func TestRefreshConcurrently(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	token := r.tokens(t, "alice")
	const tries = 8
	results := make(chan error, tries)
	for range tries {
		go func() {
			_, err := r.refresh(token.RefreshToken)
			results <- err
		}()
	}
	succeeded := 0
	for range tries {
		if <-results == nil {
			succeeded++
		}
	}
	if succeeded > 1 {
		t.Errorf("%d refreshes succeeded with one token, want at most 1", succeeded)
	}
}

func TestRefreshRefused(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	token := r.tokens(t, "alice")
	for _, bad := range []string{"x", "a.0.b", token.RefreshToken + "x", token.AccessToken} {
		_, err := r.refresh(bad)
		wantRefusal(t, err, http.StatusBadRequest, "invalid_grant")
	}
	if _, err := r.refresh(token.RefreshToken); err != nil {
		t.Errorf("forgeries ended the session: %v", err)
	}
}

func TestWithoutOpenIDNoIDToken(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	config := r.web()
	config.Scopes = []string{"profile", "unknown"}
	verifier := oauth2.GenerateVerifier()
	browser := r.browser(t)
	page := get(t, browser, config.AuthCodeURL(testState, oauth2.S256ChallengeOption(verifier)))
	code := r.submit(t, browser, page, "bob", "bob").location(t).Query().Get("code")
	token, err := config.Exchange(r.ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	if token.Extra("id_token") != nil {
		t.Error("there is an ID token")
	}
	if got := r.verify(t, token.AccessToken, issuer.DefaultAudience)["scope"]; got != "profile" {
		t.Errorf("scope = %v, want profile", got)
	}
}

func TestAccessTokenIsNoIDToken(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	token := r.tokens(t, "alice")
	for raw, audience := range map[string]string{
		token.AccessToken: issuer.WebClientID,
		idToken(t, token): issuer.DefaultAudience,
	} {
		if _, err := r.provider.Verifier(&oidc.Config{ClientID: audience}).Verify(r.ctx, raw); err == nil {
			t.Errorf("a token passes for %s", audience)
		}
	}
}
