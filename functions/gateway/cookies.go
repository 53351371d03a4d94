package gateway

import (
	"net/http"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/pkg/session"
)

// cookies names and makes the cookies that browsers get. Where clients connect by https,
// cookies are Secure and have the prefix __Host-, so that no other host and no plain
// connection can set them.
type cookies struct {
	secure bool
	prefix string
}

func newCookies(publicURL string) cookies {
	if strings.HasPrefix(publicURL, "https://") {
		return cookies{secure: true, prefix: "__Host-miniserver_"}
	}
	return cookies{prefix: "miniserver_"}
}

const (
	sessionCookie = "session"
	// loginCookie begins the name of the cookies of sign-ins in progress: one for
	// each, so that tabs that sign in at once do not disturb each other.
	loginCookie = "login_"
	// maxLogins bounds the sign-ins in progress that a browser carries along.
	maxLogins = 8
)

func (c cookies) set(w http.ResponseWriter, name, value string, maxAge time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: c.prefix + name, Value: value, Path: "/", MaxAge: int(maxAge.Seconds()),
		HttpOnly: true, Secure: c.secure, SameSite: http.SameSiteLaxMode,
	})
}

func (c cookies) clear(w http.ResponseWriter, name string) { c.set(w, name, "", -time.Second) }

// session returns the value of the session cookie, "" without one. Two of them
// are as good as none: one was planted by another site of the same domain.
func (c cookies) session(r *http.Request) string {
	if found := c.sessions(r); len(found) == 1 {
		return found[0]
	}
	return ""
}

// maxSessions bounds how many session cookies of a request are read.
const maxSessions = 4

// sessions returns the values of all session cookies.
func (c cookies) sessions(r *http.Request) (values []string) {
	found := r.CookiesNamed(c.prefix + sessionCookie)
	for _, cookie := range found[:min(len(found), maxSessions)] {
		values = append(values, cookie.Value)
	}
	return values
}

// setLogin remembers a sign-in in progress, and forgets others when there are too
// many.
func (c cookies) setLogin(w http.ResponseWriter, r *http.Request, state, secret string) {
	logins := 0
	for _, cookie := range r.Cookies() {
		if name, ok := strings.CutPrefix(cookie.Name, c.prefix); ok && strings.HasPrefix(name, loginCookie) {
			// Browsers send the oldest first (RFC 6265, 5.4), so those beyond the limit
			// are newer; they were not finished either.
			if logins++; logins >= maxLogins {
				c.clear(w, name)
			}
		}
	}
	c.set(w, loginName(state), secret, session.LoginLifetime)
}

// login returns the secret of a sign-in in progress, "" without one.
func (c cookies) login(r *http.Request, state string) string {
	cookie, err := r.Cookie(c.prefix + loginName(state))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// loginName returns the cookie's name for a state; states are base64url and differ in
// their first characters.
func loginName(state string) string {
	const distinct = 12
	name := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, state)
	return loginCookie + name[:min(len(name), distinct)]
}
