package attack_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A code works only in the sign-in that it was made for.
func TestAttackCode(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	for name, lax := range map[string]bool{"PKCE refuses it": false, "the nonce refuses it": true} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			attacker, victim := s.Visitor(), s.Visitor()
			stolen := i.Signs(t, attacker.Begin("/docs"), system.SigningIn{Subject: "alice", LaxPKCE: lax})
			own := victim.Begin("/docs")
			stolen.Set("state", own.Get("state"))
			system.WantProblem(t, victim.ComeBack(stolen), http.StatusBadRequest, "sign_in_failed")
			victim.Nobody()
		})
	}
	// The same at an issuer that this test did not write.
	t.Run("at the development issuer", func(t *testing.T) {
		listener := kit.Listen(t)
		dev := system.StartIssuer(t, "http://"+listener.Addr().String(), time.Minute, false)
		s := system.StartOn(t, listener, append([]string{"OIDC_ISSUER=" + dev.URL()}, system.Quiet...)...)
		attacker, victim := s.Person(), s.Person()
		stolen, own := attacker.ComesBack("bob"), victim.ComesBack("alice")
		for _, code := range []string{stolen.Get("code"), "made-up"} {
			query := url.Values{"state": own["state"], "code": {code}}
			a := victim.Do(http.MethodGet, "/login/callback?"+query.Encode(), "")
			system.WantProblem(t, a, http.StatusBadRequest, "sign_in_failed")
			system.WantProblem(t, victim.Do(http.MethodGet, "/v1/me", ""), http.StatusUnauthorized, "token_missing")
			own = victim.ComesBack("alice")
		}
		system.WantStatus(t, victim.Do(http.MethodGet, "/login/callback?"+own.Encode(), ""), http.StatusOK)
	})
}
