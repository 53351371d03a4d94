package issuer_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

func (r *realm) loginPage(t *testing.T, browser *http.Client, options ...oauth2.AuthCodeOption) answer {
	t.Helper()
	options = append(options, oauth2.S256ChallengeOption(oauth2.GenerateVerifier()))
	return get(t, browser, r.web().AuthCodeURL(testState, options...))
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	for _, try := range [][2]string{
		{"alice", "bob"},
		{"alice", ""},
		{"nobody", ""},
		{"", ""},
		{"ALICE", "alice"},
		{"service-account-ops", ""},
		{issuer.AliceSubject, "alice"},
		{`"><script>`, "x"},
	} {
		browser := r.browser(t)
		page := r.submit(t, browser, r.loginPage(t, browser), try[0], try[1])
		if page.StatusCode != http.StatusUnauthorized || !strings.Contains(page.body, `role="alert"`) {
			t.Errorf("%v: status %d, body %s; want 401 and an alert", try, page.StatusCode, page.body)
		}
		if strings.Contains(page.body, "<script") {
			t.Error("the username is not escaped")
		}
		// The form is shown again and works.
		if code := r.submit(t, browser, page, "alice", "alice").location(t).Query().Get("code"); code == "" {
			t.Errorf("%v: no code in the second try", try)
		}
	}
}

func TestLoginPage(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	page := r.loginPage(t, r.browser(t), oauth2.SetAuthURLParam("login_hint", "olga"))
	for _, want := range []string{
		`<html lang="en">`, `name="viewport"`, `<label for="username">`, `name="username"`,
		`<label for="password">`, `name="password"`, `type="submit"`, `value="olga"`, issuer.WebClientID,
	} {
		if !strings.Contains(page.body, want) {
			t.Errorf("no %s in the page", want)
		}
	}
	csp := page.Header.Get("Content-Security-Policy")
	for _, want := range []string{
		"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self' http://127.0.0.1:8080;",
	} {
		if !strings.Contains(csp, want) {
			t.Errorf("no %s in %s", want, csp)
		}
	}
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(page.body)[1]
	sum := sha256.Sum256([]byte(style))
	if !strings.Contains(csp, base64.StdEncoding.EncodeToString(sum[:])) {
		t.Error("the policy does not allow the style of the page")
	}
	if page.Header.Get("Cache-Control") != "no-store" {
		t.Error("the page may be cached")
	}
}

func TestUnknownLogin(t *testing.T) {
	t.Parallel()
	r := newRealm(t, issuer.Options{})
	for _, id := range []string{"", "x", "00000000-0000-0000-0000-000000000000"} {
		if got := get(t, r.browser(t), r.url+"/login?id="+id); got.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: status %d, want 400", id, got.StatusCode)
		}
	}
}
