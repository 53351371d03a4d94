package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Headers arrive as they were sent, in both directions.
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
	// Only the gateway states who calls.
	forged := s.grant("headers-forged", "u_headers", "item1", "Miniserver-Caller: x")
	forged.Header.Del("Authorization")
	nobody := s.send(forged)
	nobody.wantProblem(s.t, http.StatusUnauthorized, "token_missing")
	if got := nobody.header.Get("WWW-Authenticate"); got != "Bearer" {
		s.t.Errorf("WWW-Authenticate is %q, want Bearer", got)
	}
	return "kept"
}

// A request may carry several cookies and an answer set several: a browser with many
// unfinished sign-ins has some deleted.
func (s *scene) manyCookies() string {
	const begun, kept = 10, 7
	request := s.ask(http.MethodGet, "/login?return_to=%2Fdocs", "", "")
	for i := range begun {
		request.AddCookie(&http.Cookie{Name: fmt.Sprint("__Host-miniserver_login_", i), Value: "x"})
	}
	a := s.send(request)
	a.want(s.t, http.StatusSeeOther)
	if to := a.header.Get("Location"); !strings.HasPrefix(to, s.environment["OIDC_ISSUER"]) {
		s.t.Errorf("Location is %q, want the issuer's", to)
	}
	var forgotten, set []string
	for _, cookie := range (&http.Response{Header: a.header}).Cookies() {
		if cookie.Path != "/" || !cookie.HttpOnly || !cookie.Secure || cookie.SameSite != http.SameSiteLaxMode {
			s.t.Errorf("wrong attributes of the cookie %s", cookie)
		}
		if cookie.MaxAge < 0 {
			forgotten = append(forgotten, cookie.Name)
		} else {
			set = append(set, cookie.Name)
		}
	}
	if len(set) != 1 || len(forgotten) != begun-kept {
		s.t.Errorf("the answer sets %q and deletes %q: %q", set, forgotten, a.header.Values("Set-Cookie"))
	}
	return fmt.Sprintf("%d in, %d out", begun, len(set)+len(forgotten))
}
