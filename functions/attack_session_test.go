package functions_test

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

// Nobody chooses the session of somebody else.
func TestAttackFixation(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	planted := func(v *visitor, value string) {
		v.cookies = append(v.cookies, &http.Cookie{Name: "miniserver_session", Value: value})
	}
	made := make([]byte, 32)
	_, _ = rand.Read(made)
	for name, value := range map[string]string{
		"a made-up value": base64.RawURLEncoding.EncodeToString(made), "a short value": "x", "an empty value": "",
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			v := s.visitor()
			planted(v, value)
			v.signIn(i, "/", signingIn{subject: "alice"})
			if got := v.cookie("_session"); got == value || len(got) < 43 || !s.opens(got) {
				t.Errorf("the session is %q", got)
			}
			if value != "" && s.opens(value) {
				t.Error("the planted value opens a session")
			}
		})
	}
	t.Run("the attacker's own session", func(t *testing.T) {
		s := s.in(t)
		attacker, victim := s.visitor(), s.visitor()
		attacker.signIn(i, "/", signingIn{subject: "mallory"})
		value := attacker.cookie("_session")
		planted(victim, value)
		victim.signIn(i, "/", signingIn{subject: "alice"})
		if victim.cookie("_session") == value || s.opens(value) {
			t.Error("the planted session goes on")
		}
	})
	t.Run("signing in again ends the session before", func(t *testing.T) {
		s := s.in(t)
		v := s.visitor()
		var values []string
		for range 3 {
			v.signIn(i, "/", signingIn{subject: "alice"})
			values = append(values, v.cookie("_session"))
		}
		if values[0] == values[1] || values[1] == values[2] || s.opens(values[0]) || s.opens(values[1]) || !s.opens(values[2]) {
			t.Errorf("after three sign-ins: %t %t %t", s.opens(values[0]), s.opens(values[1]), s.opens(values[2]))
		}
	})
	t.Run("a refused sign-in leaves the session as it was", func(t *testing.T) {
		s := s.in(t)
		v := s.visitor()
		v.signIn(i, "/", signingIn{subject: "alice"})
		answered := i.signs(t, v.begin("/"), signingIn{subject: "mallory", id: map[string]any{"nonce": "x"}})
		wantProblem(t, v.comeBack(answered), http.StatusBadRequest, "sign_in_failed")
		if !s.opens(v.cookie("_session")) {
			t.Error("it ended")
		}
	})
	t.Run("two cookies at once are none", func(t *testing.T) {
		s := s.in(t)
		one, two := s.visitor(), s.visitor()
		one.signIn(i, "/", signingIn{subject: "alice"})
		two.signIn(i, "/", signingIn{subject: "mallory"})
		a, b := "miniserver_session="+one.cookie("_session"), "miniserver_session="+two.cookie("_session")
		for _, header := range []string{a + "; " + b, b + "; " + a, a + "; " + a, a + "; miniserver_session=x", "miniserver_session=; " + a} {
			wantProblem(t, s.call(http.MethodGet, "/v1/me", "", "", "Cookie: "+header), http.StatusUnauthorized, "token_missing")
		}
		wantProblem(t, s.call(http.MethodGet, "/v1/me", "", "", "Cookie: "+a, "Cookie: "+b), http.StatusUnauthorized, "token_missing")
		wantStatus(t, s.call(http.MethodGet, "/v1/me", "", "", "Cookie: other=1; "+a), http.StatusOK)
	})
	t.Run("nearly the cookie", func(t *testing.T) {
		s := s.in(t)
		v := s.visitor()
		v.signIn(i, "/", signingIn{subject: "alice"})
		value := v.cookie("_session")
		for _, near := range []string{value + "=", value[:len(value)-1], value + "A", strings.ToUpper(value), strings.ToLower(value), "%" + value, value[:42] + flipped(value[42])} {
			if s.opens(near) {
				t.Errorf("%q opens the session of %q", near, value)
			}
		}
		for _, name := range []string{"Miniserver_session", "miniserver_Session", "session", "__Host-miniserver_session", "miniserver_login_x"} {
			wantProblem(t, s.call(http.MethodGet, "/v1/me", "", "", "Cookie: "+name+"="+value), http.StatusUnauthorized, "token_missing")
		}
	})
}

// flipped is another spelling of the last character of 32 bytes in base64url: its
// two lowest bits mean nothing.
func flipped(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return string(alphabet[strings.IndexByte(alphabet, c)^1])
}
