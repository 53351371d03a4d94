package functions_test

import (
	"crypto/rand"
	"net/http"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
)

// quiet keeps the anonymous limit out of tests that are about something else.
var quiet = []string{"WAKES=false", "LIMIT_PATIENCE=1s", "LIMIT_ANONYMOUS_BURST=100000", "LIMIT_ANONYMOUS_RATE=100000"}

// startAt starts a system whose people sign in at i.
func startAt(t testing.TB, i *codeIssuer, environment ...string) *system {
	t.Helper()
	return start(t, kit.Listen(t), append(append([]string{"OIDC_ISSUER=" + i.url}, quiet...), environment...)...)
}

// The way back from the issuer works once, in the browser that began it.
func TestAttackState(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	alice := signingIn{subject: "alice"}
	for name, attack := range map[string]func(*system){
		"the same answer again": func(s *system) {
			v := s.visitor()
			answered := i.signs(s.t, v.begin("/docs"), alice)
			before := v.copied()
			wantStatus(s.t, v.comeBack(answered), http.StatusSeeOther)
			wantProblem(s.t, before.comeBack(answered), http.StatusBadRequest, "login_state_invalid")
			before.nobody()
			v.whoami()
		},
		"32 times at once": func(s *system) {
			v := s.visitor()
			answered := i.signs(s.t, v.begin("/docs"), alice)
			const times = 32
			answers := make([]answer, times)
			atOnce(times, func(n int) { answers[n] = v.copied().comeBack(answered) })
			through := 0
			for _, a := range answers {
				if a.status == http.StatusSeeOther {
					through++
					continue
				}
				// Not the code that was used up: that is the issuer's to notice.
				wantProblem(s.t, a, http.StatusBadRequest, "login_state_invalid")
			}
			if through != 1 {
				s.t.Errorf("%d were let through", through)
			}
		},
		"an answer for another browser": func(s *system) {
			attacker, victim := s.visitor(), s.visitor()
			answered := i.signs(s.t, attacker.begin("/docs"), signingIn{subject: "mallory"})
			victim.begin("/docs")
			wantProblem(s.t, victim.comeBack(answered), http.StatusBadRequest, "login_state_invalid")
			victim.nobody()
			// It was not used up by that.
			wantStatus(s.t, attacker.comeBack(answered), http.StatusSeeOther)
		},
		"the victim's cookie for the attacker's state": func(s *system) {
			attacker, victim := s.visitor(), s.visitor()
			answered := i.signs(s.t, attacker.begin("/docs"), signingIn{subject: "mallory"})
			victim.begin("/docs")
			victim.cookies[0].Name = attacker.cookies[0].Name
			wantProblem(s.t, victim.comeBack(answered), http.StatusBadRequest, "login_state_invalid")
			victim.nobody()
		},
		"no state": func(s *system) {
			v := s.visitor()
			answered := i.signs(s.t, v.begin("/docs"), alice)
			answered.Del("state")
			wantProblem(s.t, v.comeBack(answered), http.StatusBadRequest, "login_state_invalid")
			v.nobody()
		},
		"a made-up state": func(s *system) {
			v := s.visitor()
			answered := i.signs(s.t, v.begin("/docs"), alice)
			for _, state := range []string{"x", rand.Text() + rand.Text(), answered.Get("state") + "x", answered.Get("state")[:20], "../" + answered.Get("state"), "{}", "*"} {
				answered.Set("state", state)
				wantProblem(s.t, v.copied().comeBack(answered), http.StatusBadRequest, "login_state_invalid")
			}
			v.nobody()
		},
		"nothing at all": func(s *system) {
			wantProblem(s.t, s.visitor().comeBack(nil), http.StatusBadRequest, "login_state_invalid")
		},
	} {
		t.Run(name, func(t *testing.T) { attack(s.in(t)) })
	}
}
