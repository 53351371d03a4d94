package main

import (
	"net/http"
	"strings"
	"testing"
)

// Sign-in works with cookies, in both directions.
func TestCookies(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := s.start()
	for kind, a := range map[string]httpAnswer{
		"url": p.url(request{method: http.MethodGet, path: "/login", query: "return_to=%2Fshop"}.url()),
		"api": p.api(request{method: http.MethodGet, path: "/login", query: "return_to=%2Fshop"}.api()),
	} {
		if a.StatusCode/100 != 3 || !strings.HasPrefix(a.Headers["Location"], s.environment["OIDC_ISSUER"]) || len(a.Cookies) != 1 ||
			!strings.HasPrefix(a.Cookies[0], "__Host-miniserver_login_") || a.Headers["Set-Cookie"] != "" {
			t.Errorf("%s: answered %+v, want a redirect to the issuer with one cookie", kind, a)
		}
	}
	stale := request{method: http.MethodGet, path: "/v1/me", cookies: []string{"other=1", "__Host-miniserver_session=stale"}}
	for kind, a := range map[string]httpAnswer{"url": p.url(stale.url()), "api": p.api(stale.api())} {
		if a.StatusCode != http.StatusUnauthorized || a.json(t)["code"] == "token_missing" {
			t.Errorf("a session that has ended, by %s: %+v", kind, a)
		}
	}
}

// Anonymous callers are counted by the address that Lambda saw, whatever their headers
// say.
func TestSourceAddress(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := s.start("LIMIT_ANONYMOUS_RATE=1", "LIMIT_ANONYMOUS_BURST=2", "TRUSTED_PROXIES=192.0.2.0/24")
	ask := func(source, forwarded string) int {
		return p.url(request{method: http.MethodGet, path: "/v1/me", sourceIP: source, headers: map[string]string{"x-forwarded-for": forwarded}}.url()).StatusCode
	}
	limited := func(source string, forwarded func(i int) string) (n int) {
		for i := range 10 {
			if ask(source, forwarded(i)) == http.StatusTooManyRequests {
				n++
			}
		}
		return n
	}
	octet := func(i int) string { return "198.51.100." + string(rune('1'+i)) }
	if n := limited("203.0.113.1", octet); n < 5 {
		t.Errorf("one stranger under ten names: %d of 10 limited", n)
	}
	if status := ask("203.0.113.2", ""); status != http.StatusUnauthorized {
		t.Errorf("another stranger: %d", status)
	}
	if n := limited("192.0.2.1", octet); n != 0 {
		t.Errorf("nine strangers behind a trusted proxy: %d limited", n)
	}
}
