package attack_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// Scripts, other sites and other hosts get none of the cookies.
func TestAttackCookieAttributes(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	plain, secure := system.StartAt(t, i), system.StartAt(t, i, "GATEWAY_URL=https://game.example")
	for name, test := range map[string]struct {
		s      *system.System
		prefix string
		secure bool
	}{"http": {plain, "miniserver_", false}, "https": {secure, "__Host-miniserver_", true}} {
		t.Run(name, func(t *testing.T) {
			v := test.s.In(t).Visitor()
			var set []string
			login := v.Do(http.MethodGet, "/login?return_to=/docs", "")
			set = append(set, login.Header.Values("Set-Cookie")...)
			asked := system.Asked(t, login.Header.Get("Location"))
			if want := test.s.Settings().PublicURL + "/login/callback"; asked.Get("redirect_uri") != want || asked.Get("code_challenge_method") != "S256" {
				t.Errorf("the issuer is asked for %v, want the redirect %s and S256", asked, want)
			}
			back := v.ComeBack(i.Signs(t, asked, system.SigningIn{Subject: "alice"}))
			set = append(set, back.Header.Values("Set-Cookie")...)
			v.Whoami()
			out := v.Do(http.MethodPost, "/logout", "", system.CSRF)
			system.WantStatus(t, out, http.StatusNoContent)
			set = append(set, out.Header.Values("Set-Cookie")...)
			if len(set) != 4 { // sign-in begun and forgotten, session begun and ended
				t.Errorf("%d cookies were set, want 4: %q", len(set), set)
			}
			for _, line := range set {
				parts := strings.Split(line, "; ")
				attributes := map[string]bool{}
				for _, part := range parts[1:] {
					attributes[strings.ToLower(part)] = true
				}
				if !strings.HasPrefix(parts[0], test.prefix) || !attributes["httponly"] || !attributes["samesite=lax"] || !attributes["path=/"] ||
					attributes["secure"] != test.secure || strings.Contains(strings.ToLower(line), "domain") {
					t.Errorf("wrong attributes: %q", line)
				}
			}
			v.Nobody()
		})
	}
	t.Run("https takes no cookie that a plain connection may set", func(t *testing.T) {
		s := secure.In(t)
		v := s.Visitor()
		v.SignIn(i, "/", system.SigningIn{Subject: "alice"})
		value := v.Cookie("_session")
		system.WantProblem(t, s.Call(http.MethodGet, "/v1/me", "", "", "Cookie: miniserver_session="+value), http.StatusUnauthorized, "token_missing")
		system.WantStatus(t, s.Call(http.MethodGet, "/v1/me", "", "", "Cookie: __Host-miniserver_session="+value), http.StatusOK)
		planted := s.Visitor()
		answered := i.Signs(t, planted.Begin("/"), system.SigningIn{Subject: "mallory"})
		planted.Cookies[0].Name = strings.TrimPrefix(planted.Cookies[0].Name, "__Host-")
		system.WantProblem(t, planted.ComeBack(answered), http.StatusBadRequest, "login_state_invalid")
	})
}

// No token of the issuer reaches the browser or the log.
func TestAttackTokensStayHere(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	v := s.Visitor()
	v.SignIn(i, "/docs", system.SigningIn{Subject: "alice", Sid: "s1"})
	v.Do(http.MethodGet, "/", "")
	v.Do(http.MethodGet, "/v1/me", "")
	v.Do(http.MethodGet, "/v1/me/overview", "")
	v.Do(http.MethodGet, "/v1/me/notifications", "")
	v.Do(http.MethodGet, "/v1/users/"+v.Whoami()+"/entitlements", "")
	link := v.Do(http.MethodPost, "/login/link?return_to=/docs", "", system.CSRF)
	system.WantStatus(t, link, http.StatusOK)
	system.WantStatus(t, v.ComeBack(i.Signs(t, system.Asked(t, link.JSON(t)["location"].(string)), system.SigningIn{Subject: "alice2"})), http.StatusSeeOther)
	v.ComeBack(i.Signs(t, v.Begin("/docs"), system.SigningIn{Subject: "bob", ID: map[string]any{"aud": "x"}}), "Accept: text/html")
	v.Do(http.MethodPost, "/v1/me/identities", `{"access_token":"`+i.Made[0]+`x"}`, system.CSRF)
	value := v.Cookie("_session")
	v.Do(http.MethodPost, "/logout", "", system.CSRF)
	v.Do(http.MethodGet, "/v1/me", "")
	for what, text := range map[string]string{"what the browser got": v.Got.String(), "the log": s.Log.String()} {
		noTokenIn(s, what, text, i)
		if strings.Contains(text, "eyJ") {
			t.Errorf("a token is in %s", what)
		}
	}
	if len(i.Made) != 9 || strings.Contains(s.Log.String(), value) {
		t.Errorf("%d tokens were issued, want 9; or the session's value is in the log", len(i.Made))
	}
}

// Unfinished sign-ins do not pile up in the browser.
func TestAttackManyLogins(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	v := s.Visitor()
	const most = 8
	var last url.Values
	for n := range 30 {
		last = v.Begin("/docs")
		if len(v.Cookies) > most {
			t.Fatalf("%d cookies after %d unfinished sign-ins", len(v.Cookies), n+1)
		}
	}
	if len(v.Cookies) != most {
		t.Errorf("%d cookies, want %d", len(v.Cookies), most)
	}
	system.WantStatus(t, v.ComeBack(i.Signs(t, last, system.SigningIn{Subject: "alice"})), http.StatusSeeOther)
	v.Whoami()
}
