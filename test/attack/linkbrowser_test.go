package attack_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/system"
)

// In a browser, linking must end in the session in which it began.
func TestAttackLinkInBrowser(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	for name, attack := range map[string]func(*system.System, *system.Visitor){
		"begun as alice, finished as mallory": func(s *system.System, v *system.Visitor) {
			asked := v.BeginLink()
			v.SignIn(i, "/", system.SigningIn{Subject: "mallory"})
			system.WantProblem(s.T, v.ComeBack(i.Signs(s.T, asked, system.SigningIn{Subject: "second"})), http.StatusBadRequest, "login_state_invalid")
		},
		"begun as alice, finished by nobody": func(s *system.System, v *system.Visitor) {
			asked := v.BeginLink()
			system.WantStatus(s.T, v.Do(http.MethodPost, "/logout", "", system.CSRF), http.StatusNoContent)
			system.WantProblem(s.T, v.ComeBack(i.Signs(s.T, asked, system.SigningIn{Subject: "second"})), http.StatusUnauthorized, "session_missing")
		},
		"begun in one browser, finished in another": func(s *system.System, v *system.Visitor) {
			answered := i.Signs(s.T, v.BeginLink(), system.SigningIn{Subject: "second"})
			mallory := s.Visitor()
			mallory.SignIn(i, "/", system.SigningIn{Subject: "mallory"})
			system.WantProblem(s.T, mallory.ComeBack(answered), http.StatusBadRequest, "login_state_invalid")
		},
		"the second did not sign in anew": func(s *system.System, v *system.Visitor) {
			asked := v.BeginLink()
			if got := fmt.Sprint(asked["prompt"], asked["max_age"]); got != "[login] [0]" {
				s.T.Errorf("the issuer is asked for %s, want [login] [0]", got)
			}
			old := map[string]any{"auth_time": time.Now().Add(-6 * time.Minute).Unix()}
			system.WantProblem(s.T, v.ComeBack(i.Signs(s.T, asked, system.SigningIn{Subject: "second", ID: old, Access: old})), http.StatusForbidden, "sign_in_stale")
		},
		"the second is of unknown age": func(s *system.System, v *system.Visitor) {
			none := map[string]any{"auth_time": nil}
			answered := i.Signs(s.T, v.BeginLink(), system.SigningIn{Subject: "second", ID: none, Access: none})
			system.WantProblem(s.T, v.ComeBack(answered), http.StatusForbidden, "sign_in_stale")
		},
		"the second has an account": func(s *system.System, v *system.Visitor) {
			s.UserID(i.Fresh(s.T, "taken", nil))
			system.WantProblem(s.T, v.ComeBack(i.Signs(s.T, v.BeginLink(), system.SigningIn{Subject: "taken"})), http.StatusConflict, "identity_taken")
		},
		"the second has another nonce": func(s *system.System, v *system.Visitor) {
			answered := i.Signs(s.T, v.BeginLink(), system.SigningIn{Subject: "second", ID: map[string]any{"nonce": "x"}})
			system.WantProblem(s.T, v.ComeBack(answered), http.StatusBadRequest, "sign_in_failed")
		},
		"by GET": func(s *system.System, v *system.Visitor) {
			system.WantProblem(s.T, v.Do(http.MethodGet, "/login/link?return_to=/docs", "", system.CSRF), http.StatusMethodNotAllowed, "method_not_allowed")
			system.WantProblem(s.T, v.Do(http.MethodGet, "/v1/me/identities", "", system.CSRF), http.StatusMethodNotAllowed, "method_not_allowed")
		},
		"by nobody": func(s *system.System, _ *system.Visitor) {
			system.WantProblem(s.T, s.Visitor().Do(http.MethodPost, "/login/link", "", system.CSRF), http.StatusUnauthorized, "token_missing")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			v := s.Visitor()
			v.SignIn(i, "/", system.SigningIn{Subject: "alice of " + name})
			attack(s, v)
			if n := s.Count(`SELECT count(*) FROM account.identities WHERE subject = 'second'`); n != 0 {
				t.Error("the second identity is linked")
			}
		})
	}
	t.Run("the first signed in long ago", func(t *testing.T) {
		s := s.In(t)
		old := map[string]any{"auth_time": time.Now().Add(-6 * time.Minute).Unix()}
		v := s.Visitor()
		v.SignIn(i, "/", system.SigningIn{Subject: "stale", ID: old, Access: old})
		system.WantProblem(t, v.Do(http.MethodPost, "/login/link", "", system.CSRF), http.StatusForbidden, "sign_in_stale")
		system.WantProblem(t, v.Do(http.MethodPost, "/v1/me/identities", `{"access_token":"`+i.Fresh(t, "second", nil)+`"}`, system.CSRF), http.StatusForbidden, "sign_in_stale")
	})
	t.Run("as it should be", func(t *testing.T) {
		s := s.In(t)
		v := s.Visitor()
		v.SignIn(i, "/", system.SigningIn{Subject: "one"})
		user, before := v.Whoami(), v.Cookie("_session")
		system.WantStatus(t, v.ComeBack(i.Signs(t, v.BeginLink(), system.SigningIn{Subject: "two"})), http.StatusSeeOther)
		if v.Whoami() != user || v.Cookie("_session") != before || s.UserID(i.Fresh(t, "two", nil)) != user {
			t.Error("the identities are not one account, or the session changed")
		}
	})
}
