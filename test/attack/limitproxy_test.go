package attack_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// Behind a trusted proxy, the caller's address is the one that the proxy saw.
func TestAttackLimitBehindProxy(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := startLimited(t, i, "TRUSTED_PROXIES=127.0.0.1,10.0.0.0/8")
	from := func(headers ...string) system.Answer { return s.Call(http.MethodGet, "/v1/me", "", "", headers...) }
	one := func() system.Answer { return from("X-Forwarded-For: 203.0.113.1") }
	wantRateLimited(t, system.Flood(t, one), "anonymous")
	for name, forwarded := range map[string]func(n int) []string{
		"an address before one's own":        func(n int) []string { return []string{fmt.Sprintf("X-Forwarded-For: 198.51.100.%d, 203.0.113.1", n)} },
		"a trusted address before one's own": func(int) []string { return []string{"X-Forwarded-For: 10.1.1.1, 203.0.113.1"} },
		"a header before the proxy's": func(n int) []string {
			return []string{fmt.Sprintf("X-Forwarded-For: 198.51.100.%d", n), "X-Forwarded-For: 203.0.113.1"}
		},
		"another spelling of it":         func(n int) []string { return []string{fmt.Sprintf("X-Forwarded-For: [::ffff:203.0.113.1]:%d", 1000+n)} },
		"a second proxy that is trusted": func(int) []string { return []string{"X-Forwarded-For: 203.0.113.1, 10.0.0.7"} },
		"garbage before it":              func(n int) []string { return []string{fmt.Sprintf("X-Forwarded-For: x%d, 203.0.113.1", n)} },
		"an empty entry before it":       func(int) []string { return []string{"X-Forwarded-For: ,203.0.113.1"} },
		"other headers, which proxies pass on": func(n int) []string {
			return []string{"X-Forwarded-For: 203.0.113.1", fmt.Sprintf("X-Real-IP: 198.51.100.%d", n), fmt.Sprintf("Forwarded: for=198.51.100.%d", n)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantFlooded(t, s, one, func(n int) system.Answer { return from(forwarded(n)...) })
		})
	}
	for _, other := range []string{"203.0.113.2", "2001:db8::1", "198.51.100.1, 203.0.113.3"} {
		system.WantProblem(t, from("X-Forwarded-For: "+other), http.StatusUnauthorized, "token_missing")
	}
	// The addresses of one IPv6 network are one caller.
	network := func() system.Answer { return from("X-Forwarded-For: 2001:db8:1::1") }
	wantFlooded(t, s, network, func(n int) system.Answer { return from(fmt.Sprintf("X-Forwarded-For: 2001:db8:1::%x", n+2)) })
	system.WantProblem(t, from("X-Forwarded-For: 2001:db8:2::1"), http.StatusUnauthorized, "token_missing")
}
