package browser

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
)

// jar keeps cookies as browsers do on loopback: they trust it like https, so cookies
// that are marked Secure come back to an http address there. Keycloak counts on it.
type jar struct{ kept *cookiejar.Jar }

func newJar() jar {
	kept, err := cookiejar.New(nil)
	if err != nil {
		panic(err) // it has no reason to fail
	}
	return jar{kept}
}

func (j jar) SetCookies(u *url.URL, cookies []*http.Cookie) { j.kept.SetCookies(trusted(u), cookies) }
func (j jar) Cookies(u *url.URL) []*http.Cookie             { return j.kept.Cookies(trusted(u)) }

func trusted(u *url.URL) *url.URL {
	if u.Scheme != "http" || !loopback(u) {
		return u
	}
	secure := *u
	secure.Scheme = "https"
	return &secure
}
