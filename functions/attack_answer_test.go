package functions_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// What the issuer answers instead of a code is not believed, and not shown.
func TestAttackAnswer(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	const evil = `<script>alert(1)</script>"><img src=x onerror=alert(1)>`
	for name, change := range map[string]func(url.Values){
		"iss of another issuer":  func(q url.Values) { q.Set("iss", "https://evil.example") },
		"iss with a slash more":  func(q url.Values) { q.Set("iss", i.url+"/") },
		"iss twice":              func(q url.Values) { q.Add("iss", i.url) },
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
				s := s.in(t)
				v := s.visitor()
				answered := i.signs(t, v.begin("/docs"), signingIn{subject: "alice"})
				change(answered)
				a := v.comeBack(answered, accept)
				wantStatus(t, a, http.StatusBadRequest)
				if got := a.header.Get("Content-Type"); strings.HasPrefix(got, "text/html") != (media == "page") {
					t.Errorf("Content-Type %q", got)
				}
				for _, text := range []string{"<script>", "onerror", "javascript:", "evil"} {
					if strings.Contains(string(a.body), text) {
						t.Errorf("%s is in %s", text, a.body)
					}
				}
				if policy := a.header.Get("Content-Security-Policy"); media == "page" && !strings.Contains(policy, "default-src 'none'") {
					t.Errorf("Content-Security-Policy %q", policy)
				}
				if a.header.Get("Location") != "" || a.header.Get("Referrer-Policy") != "no-referrer" || a.header.Get("Cache-Control") != "no-store" {
					t.Errorf("headers %v", a.header)
				}
				v.nobody()
				// It was its one chance.
				if name != "a state of HTML" {
					good := i.signs(t, url.Values{"state": answered["state"]}, signingIn{subject: "alice"})
					wantProblem(t, v.comeBack(good), http.StatusBadRequest, "login_state_invalid")
				}
			})
		}
	}
}
