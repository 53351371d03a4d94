package functions_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Scripts, other sites and other hosts get none of the cookies.
func TestAttackCookieAttributes(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	plain, secure := startAt(t, i), startAt(t, i, "GATEWAY_URL=https://game.example")
	for name, test := range map[string]struct {
		s      *system
		prefix string
		secure bool
	}{"http": {plain, "miniserver_", false}, "https": {secure, "__Host-miniserver_", true}} {
		t.Run(name, func(t *testing.T) {
			v := test.s.in(t).visitor()
			var set []string
			login := v.do(http.MethodGet, "/login?return_to=/docs", "")
			set = append(set, login.header.Values("Set-Cookie")...)
			asked := asked(t, login.header.Get("Location"))
			if want := test.s.runtime.Settings.PublicURL + "/login/callback"; asked.Get("redirect_uri") != want || asked.Get("code_challenge_method") != "S256" {
				t.Errorf("asked for %v", asked)
			}
			back := v.comeBack(i.signs(t, asked, signingIn{subject: "alice"}))
			set = append(set, back.header.Values("Set-Cookie")...)
			v.whoami()
			out := v.do(http.MethodPost, "/logout", "", csrf)
			wantStatus(t, out, http.StatusNoContent)
			set = append(set, out.header.Values("Set-Cookie")...)
			if len(set) != 4 { // begun, forgotten, signed in, signed out
				t.Errorf("cookies %q", set)
			}
			for _, line := range set {
				parts := strings.Split(line, "; ")
				attributes := map[string]bool{}
				for _, part := range parts[1:] {
					attributes[strings.ToLower(part)] = true
				}
				if !strings.HasPrefix(parts[0], test.prefix) || !attributes["httponly"] || !attributes["samesite=lax"] || !attributes["path=/"] ||
					attributes["secure"] != test.secure || strings.Contains(strings.ToLower(line), "domain") {
					t.Errorf("cookie %q", line)
				}
			}
			v.nobody()
		})
	}
	t.Run("https takes no cookie that a plain connection may set", func(t *testing.T) {
		s := secure.in(t)
		v := s.visitor()
		v.signIn(i, "/", signingIn{subject: "alice"})
		value := v.cookie("_session")
		wantProblem(t, s.call(http.MethodGet, "/v1/me", "", "", "Cookie: miniserver_session="+value), http.StatusUnauthorized, "token_missing")
		wantStatus(t, s.call(http.MethodGet, "/v1/me", "", "", "Cookie: __Host-miniserver_session="+value), http.StatusOK)
		planted := s.visitor()
		answered := i.signs(t, planted.begin("/"), signingIn{subject: "mallory"})
		planted.cookies[0].Name = strings.TrimPrefix(planted.cookies[0].Name, "__Host-")
		wantProblem(t, planted.comeBack(answered), http.StatusBadRequest, "login_state_invalid")
	})
}

// Whatever a browser is sent, no token of the issuer's is in it, nor in the log.
func TestAttackTokensStayHere(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	v := s.visitor()
	v.signIn(i, "/docs", signingIn{subject: "alice", sid: "s1"})
	v.do(http.MethodGet, "/", "")
	v.do(http.MethodGet, "/v1/me", "")
	v.do(http.MethodGet, "/v1/me/overview", "")
	v.do(http.MethodGet, "/v1/me/notifications", "")
	v.do(http.MethodGet, "/v1/users/"+v.whoami()+"/entitlements", "")
	link := v.do(http.MethodPost, "/login/link?return_to=/docs", "", csrf)
	wantStatus(t, link, http.StatusOK)
	wantStatus(t, v.comeBack(i.signs(t, asked(t, link.json(t)["location"].(string)), signingIn{subject: "alice2"})), http.StatusSeeOther)
	v.comeBack(i.signs(t, v.begin("/docs"), signingIn{subject: "bob", id: map[string]any{"aud": "x"}}), "Accept: text/html")
	v.do(http.MethodPost, "/v1/me/identities", `{"access_token":"`+i.made[0]+`x"}`, csrf)
	value := v.cookie("_session")
	v.do(http.MethodPost, "/logout", "", csrf)
	v.do(http.MethodGet, "/v1/me", "")
	for what, text := range map[string]string{"what the browser got": v.got.String(), "the log": s.log.String()} {
		s.noTokenIn(what, text, i)
		if strings.Contains(text, "eyJ") {
			t.Errorf("a token is in %s", what)
		}
	}
	if len(i.made) != 9 || strings.Contains(s.log.String(), value) {
		t.Errorf("%d tokens; or the session's value is in the log", len(i.made))
	}
}

// Sign-ins that are begun and not finished do not pile up in the browser.
func TestAttackManyLogins(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	v := s.visitor()
	const most = 8
	var last url.Values
	for n := range 30 {
		last = v.begin("/docs")
		if len(v.cookies) > most {
			t.Fatalf("%d cookies after %d sign-ins", len(v.cookies), n+1)
		}
	}
	if len(v.cookies) != most {
		t.Errorf("%d cookies", len(v.cookies))
	}
	wantStatus(t, v.comeBack(i.signs(t, last, signingIn{subject: "alice"})), http.StatusSeeOther)
	v.whoami()
}
