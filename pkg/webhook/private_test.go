package webhook_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/webhook"
)

// Addresses of the operator's own network are refused unless allowed, however they are
// written, and whatever name resolves to them.
func TestPrivateAddressesAreRefused(t *testing.T) {
	t.Parallel()
	r := listen(t, status(200))
	here, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{
		"127.0.0.1", "127.1.2.3", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]",
		"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1", "198.18.0.1", "192.0.0.8",
		"224.0.0.1", "255.255.255.255", "240.0.0.1", "[fe80::1]", "[fc00::1]", "[fd12::1]", "[ff02::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::127.0.0.1]",
		// Special by IANA's registries, though netip calls them global unicast.
		"192.88.99.1", "192.31.196.1", "192.52.193.1", "192.175.48.1", "192.0.2.1", "198.51.100.1", "203.0.113.1",
		"[fec0::1]", "[2001::1]", "[2001:0:7f00:1::]", "[2001:2::1]", "[2001:10::1]", "[2001:20::1]", "[2001:db8::1]", "[3fff::1]", "[3fff:fff::1]",
		"[100::1]", "[100:0:0:1::1]", "[64:ff9b:1::1]", "[5f00::1]", "[2620:4f:8000::1]", "[4000::1]", "[::ffff:0:7f00:1]", "[::ffff:10.0.0.1]", "[::ffff:192.88.99.1]",
	} {
		c, err := webhook.New(webhook.Options{URLs: []string{"https://" + host + ":" + here.Port() + "/token-in-path"}, Secrets: secrets, Timeout: time.Second})
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		began := time.Now()
		err = c.Send(t.Context(), outgoing())
		if err == nil || !strings.Contains(err.Error(), "WEBHOOK_ALLOW_PRIVATE") {
			t.Errorf("%s: %v, want an error that names WEBHOOK_ALLOW_PRIVATE", host, err)
		}
		if time.Since(began) > 500*time.Millisecond {
			t.Errorf("%s was dialled", host)
		}
	}
	if n := len(r.got()); n != 0 {
		t.Errorf("%d calls came through, want none", n)
	}
}

// A proxy of the environment is not used: it would dial addresses past the check.
func TestNoProxy(t *testing.T) {
	proxy := listen(t, status(200))
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	short, err := webhook.New(webhook.Options{URLs: []string{"http://192.0.2.1:9/hook"}, Secrets: secrets, AllowPrivate: true, Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := short.Send(t.Context(), outgoing()); err == nil || len(proxy.got()) != 0 {
		t.Errorf("Send: %v, want an error; the proxy got %d calls, want none", err, len(proxy.got()))
	}
}

// Errors go into logs, last_error and dead letters, so they contain no secret and no URL.
func TestErrorsHoldNoSecret(t *testing.T) {
	t.Parallel()
	const token = "token-in-the-url"
	withToken := func(base string) string { return base + "/hook/" + token + "?key=" + token }
	check := func(name string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", name)
			return
		}
		for _, secret := range append([]string{token}, secrets...) {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %q is in the error: %v", name, secret, err)
			}
		}
	}
	closed := listen(t, status(200))
	closed.Close()
	for name, target := range map[string]string{
		"500":          withToken(listen(t, status(500)).URL),
		"refused":      withToken(closed.URL),
		"unknown name": withToken("http://no-such-host.invalid"),
		"redirect":     withToken(listen(t, status(302, "Location: http://%zz"+token)).URL),
		"bad port":     withToken("http://127.0.0.1:0"),
		"not TLS":      withToken(strings.Replace(listen(t, status(200)).URL, "http:", "https:", 1)),
	} {
		check(name, setup(t, target).Send(t.Context(), outgoing()))
	}
	for name, o := range map[string]webhook.Options{
		"no scheme":        {URLs: []string{token}, Secrets: secrets},
		"unreadable":       {URLs: []string{"https://[" + token}, Secrets: secrets},
		"user information": {URLs: []string{"https://u:" + token + "@example.com"}, Secrets: secrets},
		"plain http":       {URLs: []string{"http://example.com/" + token}, Secrets: secrets},
		"another scheme":   {URLs: []string{"ftp://example.com/" + token}, Secrets: secrets},
		"bad secret":       {URLs: []string{"https://example.com"}, Secrets: []string{token + "!"}},
		"no secret":        {URLs: []string{"https://example.com/" + token}},
		"no URL":           {Secrets: secrets},
	} {
		_, err := webhook.New(o)
		check(name, err)
	}
}

// Secrets that can be guessed are refused. An empty one is easily made: by a comma too
// many in the setting.
func TestWeakSecretsAreRefused(t *testing.T) {
	t.Parallel()
	for _, weak := range []string{"", "whsec_", "whsec_AAAA", "whsec_" + strings.Repeat("A", 28)} {
		if _, err := webhook.New(webhook.Options{URLs: []string{"https://example.com"}, Secrets: []string{secrets[0], weak}}); err == nil {
			t.Errorf("%q is accepted", weak)
		}
	}
}
