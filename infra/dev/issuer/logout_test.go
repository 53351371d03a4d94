package issuer_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

// backChannel stands for the web client's back-channel logout endpoint.
func backChannel(t *testing.T, status int) (uri string, logoutTokens <-chan string) {
	t.Helper()
	tokens := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens <- r.PostFormValue("logout_token")
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return server.URL, tokens
}

func (r *realm) wantEnded(t *testing.T, accessToken, refreshToken string) {
	t.Helper()
	if got := r.userinfoStatus(t, accessToken); got != http.StatusUnauthorized {
		t.Errorf("userinfo after the end: %d, want 401", got)
	}
	_, err := r.refresh(refreshToken)
	wantRefusal(t, err, http.StatusBadRequest, "invalid_grant")
}

func TestLogout(t *testing.T) {
	t.Parallel()
	uri, logoutTokens := backChannel(t, http.StatusOK)
	r := newRealm(t, issuer.Options{BackChannelLogoutURI: uri})
	other := r.tokens(t, "bob")
	token := r.tokens(t, "alice")
	id := idToken(t, token)

	target := get(t, r.browser(t), r.url+"/end_session?"+url.Values{
		"id_token_hint": {id}, "post_logout_redirect_uri": {postLogoutURI}, "state": {"s"},
	}.Encode()).location(t)
	if target.String() != postLogoutURI+"?state=s" {
		t.Errorf("redirected to %s", target)
	}
	r.wantEnded(t, token.AccessToken, token.RefreshToken)
	if got := r.userinfoStatus(t, other.AccessToken); got != http.StatusOK {
		t.Errorf("bob's session ended too: %d", got)
	}

	// The client was notified before the browser was redirected.
	var logoutToken string
	select {
	case logoutToken = <-logoutTokens:
	default:
		t.Fatal("no back-channel logout")
	}
	claims := r.verify(t, logoutToken, issuer.WebClientID)
	t.Logf("logout token: %v", claims)
	if segment(t, logoutToken, 0)["typ"] != "logout+jwt" {
		t.Error("wrong typ")
	}
	wantClaims(t, claims, map[string]any{
		"sub": issuer.AliceSubject, "sid": segment(t, id, 1)["sid"], "nonce": nil,
		"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}},
	})
	if claims["jti"] == nil || claims["iat"] == nil || claims["exp"] == nil {
		t.Error("jti, iat or exp is missing")
	}

	// A second logout has nothing to end and notifies no client.
	get(t, r.browser(t), r.url+"/end_session?id_token_hint="+id)
	if len(logoutTokens) != 0 {
		t.Error("the client was notified twice")
	}
}

func TestLogoutRequests(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	token := r.tokens(t, "alice")
	for name, test := range map[string]struct {
		query  url.Values
		status int
	}{
		"unregistered redirect": {url.Values{"id_token_hint": {idToken(t, token)}, "post_logout_redirect_uri": {"http://evil.test/"}}, 400},
		"access token as hint":  {url.Values{"id_token_hint": {token.AccessToken}}, 400},
		"garbage as hint":       {url.Values{"id_token_hint": {"a.b.c"}}, 400},
		"no hint":               {nil, 200},
		"redirect without hint": {url.Values{"post_logout_redirect_uri": {"http://evil.test/"}}, 200},
	} {
		got := get(t, r.browser(t), r.url+"/end_session?"+test.query.Encode())
		if got.StatusCode != test.status {
			t.Errorf("%s: status %d, want %d", name, got.StatusCode, test.status)
		}
		if test.status == http.StatusOK && !strings.Contains(got.body, "You are signed out.") {
			t.Errorf("%s: the page does not say that the user is signed out: %s", name, got.body)
		}
	}
	if got := r.userinfoStatus(t, token.AccessToken); got != http.StatusOK {
		t.Errorf("the session ended: %d", got)
	}
}

func TestEndSessions(t *testing.T) {
	t.Parallel()
	uri, logoutTokens := backChannel(t, http.StatusBadRequest) // an error answer changes nothing
	r := newRealm(t, issuer.Options{BackChannelLogoutURI: uri})
	phone, desk := r.tokens(t, "alice"), r.tokens(t, "alice")
	if got := r.EndSessions(t.Context(), "nobody"); got != 0 {
		t.Errorf("nobody had %d sessions", got)
	}
	if got := r.EndSessions(t.Context(), "alice"); got != 2 {
		t.Errorf("%d sessions ended, want 2", got)
	}
	if len(logoutTokens) != 2 {
		t.Errorf("%d logout tokens, want 2", len(logoutTokens))
	}
	r.wantEnded(t, phone.AccessToken, phone.RefreshToken)
	r.wantEnded(t, desk.AccessToken, desk.RefreshToken)
}

func TestUnreachableClientDoesNotKeepSession(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hang) })
	r := newRealm(t, issuer.Options{BackChannelLogoutURI: server.URL})
	token := r.tokens(t, "alice")
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the caller has gone; the logout continues
	begin := time.Now()
	if got := r.EndSessions(ctx, "alice"); got != 1 {
		t.Errorf("%d sessions ended, want 1", got)
	}
	if took := time.Since(begin); took < time.Second || took > 10*time.Second {
		t.Errorf("gave up after %v, want 1s to 10s", took)
	}
	r.wantEnded(t, token.AccessToken, token.RefreshToken)
}

func (r *realm) asClient(t *testing.T, path, id, secret string, form url.Values) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(r.ctx, http.MethodPost, r.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(id, secret)
	response, err := http.DefaultClient.Do(request)
	return read(t, response, err)
}

func TestRevocation(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	for _, hint := range []string{"", "refresh_token", "access_token"} {
		token := r.tokens(t, "alice")
		form := url.Values{"token": {token.RefreshToken}, "token_type_hint": {hint}}
		if got := r.asClient(t, "/revoke", issuer.OpsClientID, issuer.OpsClientSecret, form); got.StatusCode < 400 {
			t.Errorf("another client revoked the token: %d", got.StatusCode)
		}
		if got := r.asClient(t, "/revoke", issuer.WebClientID, "wrong", form); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("wrong secret: %d, want 401", got.StatusCode)
		}
		if got := r.userinfoStatus(t, token.AccessToken); got != http.StatusOK {
			t.Fatalf("revoked too early: %d", got)
		}
		if got := r.asClient(t, "/revoke", issuer.WebClientID, issuer.WebClientSecret, form); got.StatusCode != http.StatusOK {
			t.Errorf("revocation: status %d, want 200: %s", got.StatusCode, got.body)
		}
		r.wantEnded(t, token.AccessToken, token.RefreshToken)
	}

	token := r.tokens(t, "alice")
	form := url.Values{"token": {token.AccessToken}}
	r.asClient(t, "/revoke", issuer.WebClientID, issuer.WebClientSecret, form)
	if got := r.userinfoStatus(t, token.AccessToken); got != http.StatusUnauthorized {
		t.Errorf("a revoked access token works: %d", got)
	}
	if _, err := r.refresh(token.RefreshToken); err != nil {
		t.Errorf("the session ended with an access token: %v", err)
	}
}

func TestIntrospection(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	token := r.tokens(t, "olga")
	form := url.Values{"token": {token.AccessToken}}
	if got := r.asClient(t, "/introspect", issuer.OpsClientID, "wrong", form); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("wrong secret: %d, want 401", got.StatusCode)
	}
	got := r.asClient(t, "/introspect", issuer.OpsClientID, issuer.OpsClientSecret, form)
	for _, want := range []string{`"active":true`, issuer.OlgaSubject, `"roles":["player","operator"]`, `"username":"olga"`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("no %s in %s", want, got.body)
		}
	}
	r.EndSessions(t.Context(), "olga")
	got = r.asClient(t, "/introspect", issuer.OpsClientID, issuer.OpsClientSecret, form)
	if strings.TrimSpace(got.body) != `{"active":false}` {
		t.Errorf("after the end: %s", got.body)
	}
}
