package attack_test

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// Nobody can choose another user's session.
func TestAttackFixation(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	planted := func(v *system.Visitor, value string) {
		v.Cookies = append(v.Cookies, &http.Cookie{Name: "miniserver_session", Value: value})
	}
	made := make([]byte, 32)
	_, _ = rand.Read(made)
	for name, value := range map[string]string{
		"a made-up value": base64.RawURLEncoding.EncodeToString(made), "a short value": "x", "an empty value": "",
	} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			v := s.Visitor()
			planted(v, value)
			v.SignIn(i, "/", system.SigningIn{Subject: "alice"})
			if got := v.Cookie("_session"); got == value || len(got) < 43 || !s.Opens(got) {
				t.Errorf("the session is %q, want a new one that is open", got)
			}
			if value != "" && s.Opens(value) {
				t.Error("the planted value opens a session")
			}
		})
	}
	t.Run("the attacker's own session", func(t *testing.T) {
		s := s.In(t)
		attacker, victim := s.Visitor(), s.Visitor()
		attacker.SignIn(i, "/", system.SigningIn{Subject: "mallory"})
		value := attacker.Cookie("_session")
		planted(victim, value)
		victim.SignIn(i, "/", system.SigningIn{Subject: "alice"})
		if victim.Cookie("_session") == value || s.Opens(value) {
			t.Error("the planted session is still used")
		}
	})
	t.Run("signing in again ends the session before", func(t *testing.T) {
		s := s.In(t)
		v := s.Visitor()
		var values []string
		for range 3 {
			v.SignIn(i, "/", system.SigningIn{Subject: "alice"})
			values = append(values, v.Cookie("_session"))
		}
		if values[0] == values[1] || values[1] == values[2] || s.Opens(values[0]) || s.Opens(values[1]) || !s.Opens(values[2]) {
			t.Errorf("after three sign-ins, open are: %t %t %t, want only the last", s.Opens(values[0]), s.Opens(values[1]), s.Opens(values[2]))
		}
	})
	t.Run("a refused sign-in leaves the session as it was", func(t *testing.T) {
		s := s.In(t)
		v := s.Visitor()
		v.SignIn(i, "/", system.SigningIn{Subject: "alice"})
		answered := i.Signs(t, v.Begin("/"), system.SigningIn{Subject: "mallory", ID: map[string]any{"nonce": "x"}})
		system.WantProblem(t, v.ComeBack(answered), http.StatusBadRequest, "sign_in_failed")
		if !s.Opens(v.Cookie("_session")) {
			t.Error("the session has ended")
		}
	})
	t.Run("two cookies at once are none", func(t *testing.T) {
		s := s.In(t)
		one, two := s.Visitor(), s.Visitor()
		one.SignIn(i, "/", system.SigningIn{Subject: "alice"})
		two.SignIn(i, "/", system.SigningIn{Subject: "mallory"})
		a, b := "miniserver_session="+one.Cookie("_session"), "miniserver_session="+two.Cookie("_session")
		for _, header := range []string{a + "; " + b, b + "; " + a, a + "; " + a, a + "; miniserver_session=x", "miniserver_session=; " + a} {
			system.WantProblem(t, s.Call(http.MethodGet, "/v1/me", "", "", "Cookie: "+header), http.StatusUnauthorized, "token_missing")
		}
		system.WantProblem(t, s.Call(http.MethodGet, "/v1/me", "", "", "Cookie: "+a, "Cookie: "+b), http.StatusUnauthorized, "token_missing")
		system.WantStatus(t, s.Call(http.MethodGet, "/v1/me", "", "", "Cookie: other=1; "+a), http.StatusOK)
	})
	t.Run("nearly the cookie", func(t *testing.T) {
		s := s.In(t)
		v := s.Visitor()
		v.SignIn(i, "/", system.SigningIn{Subject: "alice"})
		value := v.Cookie("_session")
		for _, near := range []string{value + "=", value[:len(value)-1], value + "A", strings.ToUpper(value), strings.ToLower(value), "%" + value, value[:42] + flipped(value[42])} {
			if s.Opens(near) {
				t.Errorf("%q opens the session of %q", near, value)
			}
		}
		for _, name := range []string{"Miniserver_session", "miniserver_Session", "session", "__Host-miniserver_session", "miniserver_login_x"} {
			system.WantProblem(t, s.Call(http.MethodGet, "/v1/me", "", "", "Cookie: "+name+"="+value), http.StatusUnauthorized, "token_missing")
		}
	})
}

// flipped returns another spelling of the last base64url character of 32 bytes: its two
// lowest bits are unused.
func flipped(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return string(alphabet[strings.IndexByte(alphabet, c)^1])
}
