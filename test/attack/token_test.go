package attack_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/miniserversystem/miniserver/test/system"
)

// A token made for another purpose, or for another app, is not an access token here.
func TestAttackAccessToken(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	for name, test := range map[string]struct {
		change map[string]any
		status int
	}{
		"azp of another app":              {map[string]any{"azp": "evil-app"}, 401},
		"azp in capitals":                 {map[string]any{"azp": "MINISERVER-WEB"}, 401},
		"azp with a space":                {map[string]any{"azp": "miniserver-web "}, 401},
		"azp of two apps":                 {map[string]any{"azp": "miniserver-web,ops"}, 401},
		"azp is a list":                   {map[string]any{"azp": []string{"miniserver-web"}}, 401},
		"no azp":                          {map[string]any{"azp": nil}, 401},
		"azp empty":                       {map[string]any{"azp": ""}, 401},
		"client_id instead of azp":        {map[string]any{"azp": nil, "client_id": "miniserver-web"}, 200},
		"client_id of another app":        {map[string]any{"azp": nil, "client_id": "evil-app"}, 401},
		"azp of another, our client_id":   {map[string]any{"azp": "evil-app", "client_id": "miniserver-web"}, 401},
		"AZP, which is another claim":     {map[string]any{"azp": nil, "appid": "miniserver-web"}, 401},
		"no type, as RFC 9068 has it":     {map[string]any{"typ": nil}, 200},
		"typ in lower case":               {map[string]any{"typ": "bearer"}, 401},
		"an ID token of Keycloak":         {map[string]any{"typ": "ID", "aud": "miniserver-web", "nonce": "n"}, 401},
		"an ID token for us, too":         {map[string]any{"typ": "ID", "aud": []string{"miniserver", "miniserver-web"}}, 401},
		"an ID token of other issuers":    {map[string]any{"typ": nil, "aud": "miniserver-web", "nonce": "n"}, 401},
		"an ID token, our audience":       {map[string]any{"typ": nil, "nonce": "n"}, 401},
		"an ID token, by its at_hash":     {map[string]any{"typ": nil, "at_hash": "h"}, 401},
		"a nonce beside typ, as Keycloak": {map[string]any{"nonce": "n"}, 200},
		"a refresh token of Keycloak":     {map[string]any{"typ": "Refresh", "aud": i.URL}, 401},
		"a refresh token for us, too":     {map[string]any{"typ": "Refresh"}, 401},
		"an offline token":                {map[string]any{"typ": "Offline"}, 401},
		"a logout token of Keycloak":      {map[string]any{"typ": "Logout", "aud": "miniserver-web", "azp": nil}, 401},
		"a logout token of other issuers": {map[string]any{"typ": nil, "aud": "miniserver-web", "azp": nil, "events": map[string]any{system.LogoutEvent: map[string]any{}}}, 401},
		"as it should be":                 {nil, 200},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.In(t).Call(http.MethodGet, "/v1/me", i.Fresh(t, "alice", test.change), "")
			if test.status == http.StatusUnauthorized {
				system.WantProblem(t, a, test.status, "token_invalid")
				return
			}
			system.WantStatus(t, a, test.status)
		})
	}
	if n := s.Count(`SELECT count(*) FROM account.users`); n != 1 { // of the valid tokens
		t.Errorf("%d accounts, want 1", n)
	}
	t.Run("real ID and refresh tokens", func(t *testing.T) {
		s := s.In(t)
		v := s.Visitor()
		v.SignIn(i, "/", system.SigningIn{Subject: "alice"})
		made := i.Made[len(i.Made)-3:] // access, ID, refresh
		system.WantStatus(t, s.Call(http.MethodGet, "/v1/me", made[0], ""), http.StatusOK)
		system.WantProblem(t, s.Call(http.MethodGet, "/v1/me", made[1], ""), http.StatusUnauthorized, "token_invalid")
		system.WantProblem(t, s.Call(http.MethodGet, "/v1/me", made[2], ""), http.StatusUnauthorized, "token_invalid")
		system.WantProblem(t, s.Call(http.MethodGet, "/v1/me", v.Cookie("_session"), ""), http.StatusUnauthorized, "token_invalid")
	})
}

// A token counts only in the Authorization header, and there it decides alone.
func TestAttackWhereTheTokenIs(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	bob := i.Fresh(t, "bob", nil)
	bobID := s.UserID(bob)
	form := url.Values{"access_token": {bob}}.Encode()
	const asForm = "Content-Type: application/x-www-form-urlencoded"
	for name, ask := range map[string]func(*system.System) system.Answer{
		"in the query": func(s *system.System) system.Answer {
			return s.Call(http.MethodGet, "/v1/me?access_token="+bob, "", "")
		},
		"in the query, as token": func(s *system.System) system.Answer {
			return s.Call(http.MethodGet, "/v1/me?token="+bob+"&id_token="+bob, "", "")
		},
		"in a form": func(s *system.System) system.Answer { return s.Call(http.MethodPost, "/v1/me", "", form, asForm) },
		"in the JSON": func(s *system.System) system.Answer {
			return s.Call(http.MethodPost, "/v1/me/identities", "", `{"access_token":"`+bob+`"}`)
		},
		"in a cookie": func(s *system.System) system.Answer {
			return s.Call(http.MethodGet, "/v1/me", "", "", "Cookie: access_token="+bob)
		},
		"in other headers": func(s *system.System) system.Answer {
			return s.Call(http.MethodGet, "/v1/me", "", "", "X-Access-Token: "+bob, "Proxy-Authorization: Bearer "+bob, "X-Forwarded-Access-Token: "+bob)
		},
	} {
		t.Run(name, func(t *testing.T) {
			system.WantProblem(t, ask(s.In(t)), http.StatusUnauthorized, "token_missing")
		})
	}
	t.Run("as the session cookie", func(t *testing.T) {
		a := s.In(t).Call(http.MethodGet, "/v1/me", "", "", "Cookie: miniserver_session="+bob)
		system.WantProblem(t, a, http.StatusUnauthorized, "session_missing")
	})
	t.Run("beside a cookie, the token decides", func(t *testing.T) {
		s := s.In(t)
		v := s.Visitor()
		v.SignIn(i, "/", system.SigningIn{Subject: "alice"})
		alice := v.Whoami()
		if got := v.Do(http.MethodGet, "/v1/me", "", "Authorization: Bearer "+bob).JSON(t)["user_id"]; got != bobID || alice == bobID {
			t.Errorf("the user is %v, want bob", got)
		}
		// A cookie does not make up for a bad token.
		expired := i.Fresh(t, "bob", map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})
		none := system.Part(map[string]any{"alg": "none"}) + "." + system.Part(i.Claims(nil)) + "."
		other := system.Sign(t, jose.HS256, []byte("a key of 32 bytes, which is a lot"), i.Claims(nil), nil)
		for _, authorization := range []string{"Bearer " + expired, "Bearer " + none, "Bearer " + other, "Bearer", "Bearer ", "Basic YTpi", "x", ""} {
			a := v.Do(http.MethodGet, "/v1/me", "", "Authorization: "+authorization)
			system.WantProblem(t, a, http.StatusUnauthorized, "token_invalid")
		}
		if got := v.Whoami(); got != alice {
			t.Errorf("the session now belongs to %s", got)
		}
	})
}
