package functions_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// beginLink begins to link in the browser, and returns what the issuer is asked.
func (v *visitor) beginLink() (state map[string][]string) {
	v.s.t.Helper()
	a := v.do(http.MethodPost, "/login/link?return_to=/docs", "", csrf)
	wantStatus(v.s.t, a, http.StatusOK)
	where, _ := a.json(v.s.t)["location"].(string)
	return asked(v.s.t, where)
}

// In a browser, linking ends where it began: in the session of that account.
func TestAttackLinkInBrowser(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	for name, attack := range map[string]func(*system, *visitor){
		"begun as alice, finished as mallory": func(s *system, v *visitor) {
			asked := v.beginLink()
			v.signIn(i, "/", signingIn{subject: "mallory"})
			wantProblem(s.t, v.comeBack(i.signs(s.t, asked, signingIn{subject: "second"})), http.StatusBadRequest, "login_state_invalid")
		},
		"begun as alice, finished by nobody": func(s *system, v *visitor) {
			asked := v.beginLink()
			wantStatus(s.t, v.do(http.MethodPost, "/logout", "", csrf), http.StatusNoContent)
			wantProblem(s.t, v.comeBack(i.signs(s.t, asked, signingIn{subject: "second"})), http.StatusUnauthorized, "session_missing")
		},
		"begun in one browser, finished in another": func(s *system, v *visitor) {
			answered := i.signs(s.t, v.beginLink(), signingIn{subject: "second"})
			mallory := s.visitor()
			mallory.signIn(i, "/", signingIn{subject: "mallory"})
			wantProblem(s.t, mallory.comeBack(answered), http.StatusBadRequest, "login_state_invalid")
		},
		"the second did not sign in anew": func(s *system, v *visitor) {
			asked := v.beginLink()
			if got := fmt.Sprint(asked["prompt"], asked["max_age"]); got != "[login] [0]" {
				s.t.Errorf("the issuer is asked for %s", got)
			}
			old := map[string]any{"auth_time": time.Now().Add(-6 * time.Minute).Unix()}
			wantProblem(s.t, v.comeBack(i.signs(s.t, asked, signingIn{subject: "second", id: old, access: old})), http.StatusForbidden, "sign_in_stale")
		},
		"the second is of unknown age": func(s *system, v *visitor) {
			none := map[string]any{"auth_time": nil}
			answered := i.signs(s.t, v.beginLink(), signingIn{subject: "second", id: none, access: none})
			wantProblem(s.t, v.comeBack(answered), http.StatusForbidden, "sign_in_stale")
		},
		"the second has an account": func(s *system, v *visitor) {
			s.userID(i.fresh(s.t, "taken", nil))
			wantProblem(s.t, v.comeBack(i.signs(s.t, v.beginLink(), signingIn{subject: "taken"})), http.StatusConflict, "identity_taken")
		},
		"the second has another nonce": func(s *system, v *visitor) {
			answered := i.signs(s.t, v.beginLink(), signingIn{subject: "second", id: map[string]any{"nonce": "x"}})
			wantProblem(s.t, v.comeBack(answered), http.StatusBadRequest, "sign_in_failed")
		},
		"by GET": func(s *system, v *visitor) {
			wantProblem(s.t, v.do(http.MethodGet, "/login/link?return_to=/docs", "", csrf), http.StatusMethodNotAllowed, "method_not_allowed")
			wantProblem(s.t, v.do(http.MethodGet, "/v1/me/identities", "", csrf), http.StatusMethodNotAllowed, "method_not_allowed")
		},
		"by nobody": func(s *system, _ *visitor) {
			wantProblem(s.t, s.visitor().do(http.MethodPost, "/login/link", "", csrf), http.StatusUnauthorized, "token_missing")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			v := s.visitor()
			v.signIn(i, "/", signingIn{subject: "alice of " + name})
			attack(s, v)
			if n := s.count(`SELECT count(*) FROM account.identities WHERE subject = 'second'`); n != 0 {
				t.Error("it is linked")
			}
		})
	}
	t.Run("the first signed in long ago", func(t *testing.T) {
		s := s.in(t)
		old := map[string]any{"auth_time": time.Now().Add(-6 * time.Minute).Unix()}
		v := s.visitor()
		v.signIn(i, "/", signingIn{subject: "stale", id: old, access: old})
		wantProblem(t, v.do(http.MethodPost, "/login/link", "", csrf), http.StatusForbidden, "sign_in_stale")
		wantProblem(t, v.do(http.MethodPost, "/v1/me/identities", `{"access_token":"`+i.fresh(t, "second", nil)+`"}`, csrf), http.StatusForbidden, "sign_in_stale")
	})
	t.Run("as it should be", func(t *testing.T) {
		s := s.in(t)
		v := s.visitor()
		v.signIn(i, "/", signingIn{subject: "one"})
		user, before := v.whoami(), v.cookie("_session")
		wantStatus(t, v.comeBack(i.signs(t, v.beginLink(), signingIn{subject: "two"})), http.StatusSeeOther)
		if v.whoami() != user || v.cookie("_session") != before || s.userID(i.fresh(t, "two", nil)) != user {
			t.Error("they are not one")
		}
	})
}
