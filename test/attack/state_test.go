package attack_test

import (
	"crypto/rand"
	"net/http"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// The callback works once, in the browser that began the sign-in.
func TestAttackState(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	alice := system.SigningIn{Subject: "alice"}
	for name, attack := range map[string]func(*system.System){
		"the same answer again": func(s *system.System) {
			v := s.Visitor()
			answered := i.Signs(s.T, v.Begin("/docs"), alice)
			before := v.Copied()
			system.WantStatus(s.T, v.ComeBack(answered), http.StatusSeeOther)
			system.WantProblem(s.T, before.ComeBack(answered), http.StatusBadRequest, "login_state_invalid")
			before.Nobody()
			v.Whoami()
		},
		"32 times at once": func(s *system.System) {
			v := s.Visitor()
			answered := i.Signs(s.T, v.Begin("/docs"), alice)
			const times = 32
			answers := make([]system.Answer, times)
			system.AtOnce(times, func(n int) { answers[n] = v.Copied().ComeBack(answered) })
			through := 0
			for _, a := range answers {
				if a.Status == http.StatusSeeOther {
					through++
					continue
				}
				// Not the error of a used code: the issuer checks that.
				system.WantProblem(s.T, a, http.StatusBadRequest, "login_state_invalid")
			}
			if through != 1 {
				s.T.Errorf("%d callbacks succeeded, want 1", through)
			}
		},
		"an answer for another browser": func(s *system.System) {
			attacker, victim := s.Visitor(), s.Visitor()
			answered := i.Signs(s.T, attacker.Begin("/docs"), system.SigningIn{Subject: "mallory"})
			victim.Begin("/docs")
			system.WantProblem(s.T, victim.ComeBack(answered), http.StatusBadRequest, "login_state_invalid")
			victim.Nobody()
			// The attempt did not use it up.
			system.WantStatus(s.T, attacker.ComeBack(answered), http.StatusSeeOther)
		},
		"the victim's cookie for the attacker's state": func(s *system.System) {
			attacker, victim := s.Visitor(), s.Visitor()
			answered := i.Signs(s.T, attacker.Begin("/docs"), system.SigningIn{Subject: "mallory"})
			victim.Begin("/docs")
			victim.Cookies[0].Name = attacker.Cookies[0].Name
			system.WantProblem(s.T, victim.ComeBack(answered), http.StatusBadRequest, "login_state_invalid")
			victim.Nobody()
		},
		"no state": func(s *system.System) {
			v := s.Visitor()
			answered := i.Signs(s.T, v.Begin("/docs"), alice)
			answered.Del("state")
			system.WantProblem(s.T, v.ComeBack(answered), http.StatusBadRequest, "login_state_invalid")
			v.Nobody()
		},
		"a made-up state": func(s *system.System) {
			v := s.Visitor()
			answered := i.Signs(s.T, v.Begin("/docs"), alice)
			for _, state := range []string{"x", rand.Text() + rand.Text(), answered.Get("state") + "x", answered.Get("state")[:20], "../" + answered.Get("state"), "{}", "*"} {
				answered.Set("state", state)
				system.WantProblem(s.T, v.Copied().ComeBack(answered), http.StatusBadRequest, "login_state_invalid")
			}
			v.Nobody()
		},
		"nothing at all": func(s *system.System) {
			system.WantProblem(s.T, s.Visitor().ComeBack(nil), http.StatusBadRequest, "login_state_invalid")
		},
	} {
		t.Run(name, func(t *testing.T) { attack(s.In(t)) })
	}
}
