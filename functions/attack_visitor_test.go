package functions_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// visitor is a browser of which a test sees and chooses every byte. It follows no
// redirect, and sends its cookies whether or not they are Secure.
type visitor struct {
	s       *system
	cookies []*http.Cookie
	got     strings.Builder // every answer, whole
}

func (s *system) visitor() *visitor { return &visitor{s: s} }

// do sends a request with the visitor's cookies; headers are "Name: value".
func (v *visitor) do(method, path, body string, headers ...string) answer {
	v.s.t.Helper()
	header := http.Header{}
	if body != "" {
		header.Set("Content-Type", "application/json")
	}
	if cookies := v.cookieHeader(); cookies != "" {
		header.Set("Cookie", cookies)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		header.Set(name, value)
	}
	a := v.s.send(request{method: method, path: path, body: body, header: header})
	fmt.Fprintln(&v.got, a.status, a.header, string(a.body))
	for _, cookie := range (&http.Response{Header: a.header}).Cookies() {
		v.cookies = slices.DeleteFunc(v.cookies, func(c *http.Cookie) bool { return c.Name == cookie.Name })
		if cookie.MaxAge >= 0 {
			v.cookies = append(v.cookies, cookie)
		}
	}
	return a
}

func (v *visitor) cookieHeader() string {
	var pairs []string
	for _, c := range v.cookies {
		pairs = append(pairs, c.Name+"="+c.Value)
	}
	return strings.Join(pairs, "; ")
}

// cookie returns the value of the cookie whose name ends so, "" without one.
func (v *visitor) cookie(name string) string {
	for _, c := range v.cookies {
		if strings.HasSuffix(c.Name, name) {
			return c.Value
		}
	}
	return ""
}

// copied is another browser with the same cookies.
func (v *visitor) copied() *visitor { return &visitor{s: v.s, cookies: slices.Clone(v.cookies)} }

// begin opens /login and returns what the issuer would be asked.
func (v *visitor) begin(returnTo string) url.Values {
	v.s.t.Helper()
	a := v.do(http.MethodGet, "/login?return_to="+url.QueryEscape(returnTo), "")
	wantStatus(v.s.t, a, http.StatusSeeOther)
	return asked(v.s.t, a.header.Get("Location"))
}

// asked returns what an issuer is asked at where.
func asked(t testing.TB, where string) url.Values {
	t.Helper()
	at, err := url.Parse(where)
	must(t, err)
	if at.Query().Get("state") == "" {
		t.Fatalf("this asks for no sign-in: %s", where)
	}
	return at.Query()
}

// comeBack is the way back from the issuer.
func (v *visitor) comeBack(query url.Values, headers ...string) answer {
	v.s.t.Helper()
	return v.do(http.MethodGet, "/login/callback?"+query.Encode(), "", headers...)
}

// signIn signs in and returns where that led to.
func (v *visitor) signIn(i *codeIssuer, returnTo string, who signingIn) string {
	v.s.t.Helper()
	a := v.comeBack(i.signs(v.s.t, v.begin(returnTo), who))
	wantStatus(v.s.t, a, http.StatusSeeOther)
	return a.header.Get("Location")
}

// nobody fails unless the visitor has no session.
func (v *visitor) nobody() {
	v.s.t.Helper()
	if value := v.cookie("miniserver_session"); value != "" {
		v.s.t.Errorf("there is a session cookie")
	}
	wantProblem(v.s.t, v.do(http.MethodGet, "/v1/me", ""), http.StatusUnauthorized, "token_missing")
}

// whoami returns the visitor's user id.
func (v *visitor) whoami() string {
	v.s.t.Helper()
	a := v.do(http.MethodGet, "/v1/me", "")
	wantStatus(v.s.t, a, http.StatusOK)
	id, _ := a.json(v.s.t)["user_id"].(string)
	return id
}

// opens reports whether a value of the session cookie opens a session.
func (s *system) opens(value string) bool {
	s.t.Helper()
	a := s.call(http.MethodGet, "/v1/me", "", "", "Cookie: miniserver_session="+value)
	if a.status != http.StatusOK {
		wantProblem(s.t, a, http.StatusUnauthorized, "session_missing")
	}
	return a.status == http.StatusOK
}
