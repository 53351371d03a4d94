package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Headers come as they were sent, and go as they were set.
func (s *scene) headers() string {
	a := s.send(s.grant("headers", "u_headers", "item1"))
	a.want(s.t, http.StatusOK)
	for name, want := range map[string]string{
		"ETag": `"1"`, "Content-Type": "application/json", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
	} {
		if got := a.header.Values(name); !slices.Equal(got, []string{want}) {
			s.t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	s.send(s.grant("headers-stale", "u_headers", "item1", `If-Match: "7"`)).wantProblem(s.t, http.StatusPreconditionFailed, "version_mismatch")
	s.send(s.grant("headers-fresh", "u_headers", "item1", `If-Match: "1"`)).want(s.t, http.StatusOK)
	// Nobody but the gateway says who calls.
	forged := s.grant("headers-forged", "u_headers", "item1", "Miniserver-Caller: x")
	forged.Header.Del("Authorization")
	nobody := s.send(forged)
	nobody.wantProblem(s.t, http.StatusUnauthorized, "token_missing")
	if got := nobody.header.Get("WWW-Authenticate"); got != "Bearer" {
		s.t.Errorf("WWW-Authenticate %q", got)
	}
	return "kept"
}

// Several cookies come in one request, and several go in one answer: a browser that
// carries many sign-ins along is told to forget some.
func (s *scene) manyCookies() string {
	const begun, kept = 10, 7
	request := s.ask(http.MethodGet, "/login?return_to=%2Fdocs", "", "")
	for i := range begun {
		request.AddCookie(&http.Cookie{Name: fmt.Sprint("__Host-miniserver_login_", i), Value: "x"})
	}
	a := s.send(request)
	a.want(s.t, http.StatusSeeOther)
	if to := a.header.Get("Location"); !strings.HasPrefix(to, s.environment["OIDC_ISSUER"]) {
		s.t.Errorf("Location %q", to)
	}
	var forgotten, set []string
	for _, cookie := range (&http.Response{Header: a.header}).Cookies() {
		if cookie.Path != "/" || !cookie.HttpOnly || !cookie.Secure || cookie.SameSite != http.SameSiteLaxMode {
			s.t.Errorf("cookie %s", cookie)
		}
		if cookie.MaxAge < 0 {
			forgotten = append(forgotten, cookie.Name)
		} else {
			set = append(set, cookie.Name)
		}
	}
	if len(set) != 1 || len(forgotten) != begun-kept {
		s.t.Errorf("set %q, forgot %q: %q", set, forgotten, a.header.Values("Set-Cookie"))
	}
	return fmt.Sprintf("%d in, %d out", begun, len(set)+len(forgotten))
}
