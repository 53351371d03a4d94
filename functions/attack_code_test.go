package functions_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// A code is worth nothing in a sign-in that it was not made for.
func TestAttackCode(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	for name, lax := range map[string]bool{"PKCE refuses it": false, "the nonce refuses it": true} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			attacker, victim := s.visitor(), s.visitor()
			stolen := i.signs(t, attacker.begin("/docs"), signingIn{subject: "alice", laxPKCE: lax})
			own := victim.begin("/docs")
			stolen.Set("state", own.Get("state"))
			wantProblem(t, victim.comeBack(stolen), http.StatusBadRequest, "sign_in_failed")
			victim.nobody()
		})
	}
	// The same at an issuer that we did not write.
	t.Run("at the development issuer", func(t *testing.T) {
		listener := kit.Listen(t)
		dev := startDevIssuer(t, "http://"+listener.Addr().String(), time.Minute, false)
		s := start(t, listener, append([]string{"OIDC_ISSUER=" + dev.URL()}, quiet...)...)
		attacker, victim := s.person(), s.person()
		stolen, own := attacker.comesBack("bob"), victim.comesBack("alice")
		for _, code := range []string{stolen.Get("code"), "made-up"} {
			query := url.Values{"state": own["state"], "code": {code}}
			a := victim.do(http.MethodGet, "/login/callback?"+query.Encode(), "")
			wantProblem(t, a, http.StatusBadRequest, "sign_in_failed")
			wantProblem(t, victim.do(http.MethodGet, "/v1/me", ""), http.StatusUnauthorized, "token_missing")
			own = victim.comesBack("alice")
		}
		wantStatus(t, victim.do(http.MethodGet, "/login/callback?"+own.Encode(), ""), http.StatusOK)
	})
}

// comesBack signs in at the issuer and stops before the gateway hears of it. It
// returns what the browser would come back with.
func (p *person) comesBack(name string) (answered url.Values) {
	p.t.Helper()
	client := p.browser.Client()
	follow := client.CheckRedirect
	defer func() { client.CheckRedirect = follow }()
	client.CheckRedirect = func(next *http.Request, before []*http.Request) error {
		if next.URL.Path == "/login/callback" {
			answered = next.URL.Query()
			return http.ErrNoLocation // any error stops it
		}
		return follow(next, before)
	}
	response, err := p.browser.SignIn(p.system.url+"/login?again=true&return_to=/docs", name, name)
	if err == nil {
		_ = response.Body.Close()
	}
	if answered.Get("code") == "" {
		p.t.Fatalf("no code for %s: %v", name, err)
	}
	return answered
}
