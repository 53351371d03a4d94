package attack_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// An issuer's answer other than a code is neither believed nor shown.
func TestAttackAnswer(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	const evil = `<script>alert(1)</script>"><img src=x onerror=alert(1)>`
	for name, change := range map[string]func(url.Values){
		"iss of another issuer":  func(q url.Values) { q.Set("iss", "https://evil.example") },
		"iss with a slash more":  func(q url.Values) { q.Set("iss", i.URL+"/") },
		"iss twice":              func(q url.Values) { q.Add("iss", i.URL) },
		"iss twice, ours first":  func(q url.Values) { q.Add("iss", "https://evil.example") },
		"iss empty":              func(q url.Values) { q.Set("iss", "") },
		"iss missing":            func(q url.Values) { q.Del("iss") },
		"access denied":          func(q url.Values) { q.Del("code"); q.Set("error", "access_denied") },
		"an error beside a code": func(q url.Values) { q.Set("error", "access_denied") },
		"an error of HTML": func(q url.Values) {
			q.Del("code")
			q.Set("error", evil)
			q.Set("error_description", evil)
			q.Set("error_uri", "javascript:alert(1)")
		},
		"a code of HTML":  func(q url.Values) { q.Set("code", evil) },
		"no code":         func(q url.Values) { q.Del("code") },
		"a made-up code":  func(q url.Values) { q.Set("code", "x") },
		"a state of HTML": func(q url.Values) { q.Set("state", evil) },
	} {
		for media, accept := range map[string]string{"problem": "Accept: application/json", "page": "Accept: text/html,*/*;q=0.8"} {
			t.Run(name+", "+media, func(t *testing.T) {
				s := s.In(t)
				v := s.Visitor()
				answered := i.Signs(t, v.Begin("/docs"), system.SigningIn{Subject: "alice"})
				change(answered)
				a := v.ComeBack(answered, accept)
				system.WantStatus(t, a, http.StatusBadRequest)
				if got := a.Header.Get("Content-Type"); strings.HasPrefix(got, "text/html") != (media == "page") {
					t.Errorf("Content-Type %q for a %s", got, media)
				}
				for _, text := range []string{"<script>", "onerror", "javascript:", "evil"} {
					if strings.Contains(string(a.Body), text) {
						t.Errorf("the answer shows %s: %s", text, a.Body)
					}
				}
				if policy := a.Header.Get("Content-Security-Policy"); media == "page" && !strings.Contains(policy, "default-src 'none'") {
					t.Errorf("Content-Security-Policy %q", policy)
				}
				if a.Header.Get("Location") != "" || a.Header.Get("Referrer-Policy") != "no-referrer" || a.Header.Get("Cache-Control") != "no-store" {
					t.Errorf("headers %v, want no Location, no-referrer and no-store", a.Header)
				}
				v.Nobody()
				// The state is used up.
				if name != "a state of HTML" {
					good := i.Signs(t, url.Values{"state": answered["state"]}, system.SigningIn{Subject: "alice"})
					system.WantProblem(t, v.ComeBack(good), http.StatusBadRequest, "login_state_invalid")
				}
			})
		}
	}
}
