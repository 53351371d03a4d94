package system

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/test/kit"
)

// BeginLink begins linking in the browser, and returns the parameters for the issuer.
func (v *Visitor) BeginLink() (state map[string][]string) {
	v.S.T.Helper()
	a := v.Do(http.MethodPost, "/login/link?return_to=/docs", "", CSRF)
	WantStatus(v.S.T, a, http.StatusOK)
	where, _ := a.JSON(v.S.T)["location"].(string)
	return Asked(v.S.T, where)
}

// QueueUp joins a queue with the visitor's session and returns the ticket's id.
func (v *Visitor) QueueUp(mode, attributes string) string {
	v.S.T.Helper()
	a := v.Do(http.MethodPost, "/v1/matchmaking/queues/"+mode+"/tickets", `{"party_size":1,"idempotency_key":"k1","attributes":`+attributes+`}`, CSRF)
	WantStatus(v.S.T, a, http.StatusCreated)
	return a.JSON(v.S.T)["ticket_id"].(string)
}

// UnusedID returns id with another last character: an id that nothing has.
func UnusedID(id string) string {
	last := id[len(id)-1]
	if last == '0' {
		return id[:len(id)-1] + "1"
	}
	return id[:len(id)-1] + "0"
}

// Open is Do, but does not wait for the end of a stream.
func (v *Visitor) Open(route fn.Route, path, body string, headers []string) Answer {
	v.S.T.Helper()
	if !route.Stream {
		return v.Do(route.Method, path, body, headers...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, route.Method, v.S.URL+path, strings.NewReader(body))
	kit.Must(v.S.T, err)
	if cookies := v.CookieHeader(); cookies != "" {
		request.Header.Set("Cookie", cookies)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	kit.Must(v.S.T, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return v.S.Read(response, nil)
	}
	first := make([]byte, 512)
	n, err := io.ReadAtLeast(response.Body, first, 1)
	kit.Must(v.S.T, err)
	return Answer{response.StatusCode, response.Header, first[:n]}
}

// Visitor is a browser whose every byte a test chooses and sees. It follows no redirect,
// and sends its cookies whether or not they are Secure.
type Visitor struct {
	S       *System
	Cookies []*http.Cookie
	Got     strings.Builder // every answer, whole
}

// Visitor returns a browser without cookies.
func (s *System) Visitor() *Visitor { return &Visitor{S: s} }

// Do sends a request with the visitor's cookies; headers are "Name: value".
func (v *Visitor) Do(method, path, body string, headers ...string) Answer {
	v.S.T.Helper()
	header := http.Header{}
	if body != "" {
		header.Set("Content-Type", "application/json")
	}
	if cookies := v.CookieHeader(); cookies != "" {
		header.Set("Cookie", cookies)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		header.Set(name, value)
	}
	a := v.S.Send(Request{Method: method, Path: path, Body: body, Header: header})
	fmt.Fprintln(&v.Got, a.Status, a.Header, string(a.Body))
	for _, cookie := range (&http.Response{Header: a.Header}).Cookies() {
		v.Cookies = slices.DeleteFunc(v.Cookies, func(c *http.Cookie) bool { return c.Name == cookie.Name })
		if cookie.MaxAge >= 0 {
			v.Cookies = append(v.Cookies, cookie)
		}
	}
	return a
}

// CookieHeader is what the visitor sends as Cookie.
func (v *Visitor) CookieHeader() string {
	var pairs []string
	for _, c := range v.Cookies {
		pairs = append(pairs, c.Name+"="+c.Value)
	}
	return strings.Join(pairs, "; ")
}

// Cookie returns the value of the cookie whose name ends in name, "" without one.
func (v *Visitor) Cookie(name string) string {
	for _, c := range v.Cookies {
		if strings.HasSuffix(c.Name, name) {
			return c.Value
		}
	}
	return ""
}

// Copied returns another browser with the same cookies.
func (v *Visitor) Copied() *Visitor { return &Visitor{S: v.S, Cookies: slices.Clone(v.Cookies)} }

// Begin opens /login and returns the parameters for the issuer.
func (v *Visitor) Begin(returnTo string) url.Values {
	v.S.T.Helper()
	a := v.Do(http.MethodGet, "/login?return_to="+url.QueryEscape(returnTo), "")
	WantStatus(v.S.T, a, http.StatusSeeOther)
	return Asked(v.S.T, a.Header.Get("Location"))
}

// Asked returns the parameters of a redirect to the issuer.
func Asked(t testing.TB, where string) url.Values {
	t.Helper()
	at, err := url.Parse(where)
	kit.Must(t, err)
	if at.Query().Get("state") == "" {
		t.Fatalf("no state, so this does not begin a sign-in: %s", where)
	}
	return at.Query()
}

// ComeBack opens the callback with the issuer's answer.
func (v *Visitor) ComeBack(query url.Values, headers ...string) Answer {
	v.S.T.Helper()
	return v.Do(http.MethodGet, "/login/callback?"+query.Encode(), "", headers...)
}

// SignIn signs in and returns where the gateway redirects then.
func (v *Visitor) SignIn(i *CodeIssuer, returnTo string, who SigningIn) string {
	v.S.T.Helper()
	a := v.ComeBack(i.Signs(v.S.T, v.Begin(returnTo), who))
	WantStatus(v.S.T, a, http.StatusSeeOther)
	return a.Header.Get("Location")
}

// Nobody fails the test if the visitor has a session.
func (v *Visitor) Nobody() {
	v.S.T.Helper()
	if value := v.Cookie("miniserver_session"); value != "" {
		v.S.T.Errorf("there is a session cookie, want none")
	}
	WantProblem(v.S.T, v.Do(http.MethodGet, "/v1/me", ""), http.StatusUnauthorized, "token_missing")
}

// Whoami returns the visitor's user id.
func (v *Visitor) Whoami() string {
	v.S.T.Helper()
	a := v.Do(http.MethodGet, "/v1/me", "")
	WantStatus(v.S.T, a, http.StatusOK)
	id, _ := a.JSON(v.S.T)["user_id"].(string)
	return id
}

// Opens reports whether value, as the session cookie, opens a session.
func (s *System) Opens(value string) bool {
	s.T.Helper()
	a := s.Call(http.MethodGet, "/v1/me", "", "", "Cookie: miniserver_session="+value)
	if a.Status != http.StatusOK {
		WantProblem(s.T, a, http.StatusUnauthorized, "session_missing")
	}
	return a.Status == http.StatusOK
}
