package functions_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	logoutEvent     = "http://schemas.openid.net/event/backchannel-logout"
	backChannelPath = "/logout/backchannel"
	formType        = "Content-Type: application/x-www-form-urlencoded"
)

// logoutClaims are those of a logout token for the session sid, with some changed;
// a nil leaves one out.
func (i *codeIssuer) logoutClaims(sid string, change map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{
		"sub": nil, "sid": sid, "aud": "miniserver-web", "azp": nil, "typ": "Logout", "realm_access": nil, "jti": rand.Text(),
		"iat": now.Unix(), "exp": now.Add(2 * time.Minute).Unix(), "events": map[string]any{logoutEvent: map[string]any{}},
	}
	for name, value := range change {
		claims[name] = value
	}
	return i.claims(claims)
}

func (i *codeIssuer) logoutToken(t testing.TB, sid string, change map[string]any) string {
	t.Helper()
	return sign(t, jose.RS256, jose.JSONWebKey{Key: i.key, KeyID: "k1"}, i.logoutClaims(sid, change), nil)
}

// backChannel sends a logout token as an issuer does: with no cookie and no X-CSRF.
func (s *system) backChannel(token string) answer {
	s.t.Helper()
	return s.call(http.MethodPost, backChannelPath, "", url.Values{"logout_token": {token}}.Encode(), formType)
}

// Only the issuer ends sessions, with a token that is made for that and for us.
func TestAttackBackChannel(t *testing.T) {
	t.Parallel()
	i, other := newCodeIssuer(t), newCodeIssuer(t)
	s := startAt(t, i)
	v := s.visitor()
	v.signIn(i, "/", signingIn{subject: "alice", sid: "s1"})
	access, id := i.made[0], i.made[1]
	attacker, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	der, err := x509.MarshalPKIXPublicKey(&i.key.PublicKey)
	must(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	with := func(name string, value any) string { return i.logoutToken(t, "s1", map[string]any{name: value}) }
	good := i.logoutToken(t, "s1", nil)
	pieces := strings.Split(good, ".")
	now := time.Now()
	for name, token := range map[string]string{
		"alg none":                   part(map[string]any{"alg": "none", "kid": "k1"}) + "." + part(i.logoutClaims("s1", nil)) + ".",
		"no signature":               pieces[0] + "." + pieces[1] + ".",
		"other claims":               pieces[0] + "." + part(i.logoutClaims("s1", nil)) + "." + pieces[2],
		"HS256 with the public key":  sign(t, jose.HS256, publicPEM, i.logoutClaims("s1", nil), map[jose.HeaderKey]any{"kid": "k1"}),
		"another key":                sign(t, jose.RS256, jose.JSONWebKey{Key: attacker, KeyID: "k1"}, i.logoutClaims("s1", nil), nil),
		"another key, its own id":    sign(t, jose.RS256, jose.JSONWebKey{Key: attacker, KeyID: "k2"}, i.logoutClaims("s1", nil), nil),
		"another key, in its header": sign(t, jose.RS256, attacker, i.logoutClaims("s1", nil), map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: &attacker.PublicKey}}),
		"another issuer":             with("iss", other.url),
		"no issuer":                  with("iss", nil),
		"for another client":         with("aud", "another"),
		"for the API":                with("aud", "miniserver"),
		"for nobody":                 with("aud", nil),
		"no events":                  with("events", nil),
		"events of another kind":     with("events", map[string]any{"http://schemas.openid.net/event/other": map[string]any{}}),
		"events that are a text":     with("events", logoutEvent),
		"a nonce":                    with("nonce", "n"),
		"an empty nonce":             with("nonce", ""),
		"expired":                    with("exp", now.Add(-time.Second).Unix()),
		"never expires":              with("exp", nil),
		"issued an hour ago":         with("iat", now.Add(-time.Hour).Unix()),
		"issued at no time":          with("iat", nil),
		"no id":                      with("jti", nil),
		"neither sid nor sub":        with("sid", nil),
		"sid and sub empty":          i.logoutToken(t, "", map[string]any{"sub": ""}),
		"an ID token instead":        id,
		"an access token instead":    access,
		"garbage":                    "x",
		"empty":                      "",
		"9 kB":                       strings.Repeat("x", 9<<10),
	} {
		t.Run(name, func(t *testing.T) {
			a := s.in(t).backChannel(token)
			wantProblem(t, a, http.StatusBadRequest, "logout_token_invalid")
			if !s.in(t).opens(v.cookie("_session")) {
				t.Fatal("the session has ended")
			}
		})
	}
	form := url.Values{"logout_token": {good}}.Encode()
	for name, test := range map[string]struct {
		path, body, media string
		status            int
	}{
		"as JSON":             {backChannelPath, `{"logout_token":"` + good + `"}`, "application/json", 415},
		"as text":             {backChannelPath, form, "text/plain", 415},
		"in parts":            {backChannelPath, "--x\r\nContent-Disposition: form-data; name=\"logout_token\"\r\n\r\n" + good + "\r\n--x--\r\n", "multipart/form-data; boundary=x", 415},
		"of no type":          {backChannelPath, form, "", 415},
		"70 kB":               {backChannelPath, form + "&x=" + strings.Repeat("x", 70<<10), "application/x-www-form-urlencoded", 413},
		"in the query":        {backChannelPath + "?" + form, "", "application/x-www-form-urlencoded", 400},
		"a broken form":       {backChannelPath, "logout_token=%zz" + good, "application/x-www-form-urlencoded", 400},
		"under another name":  {backChannelPath, url.Values{"token": {good}, "id_token": {good}}.Encode(), "application/x-www-form-urlencoded", 400},
		"as a bearer's token": {backChannelPath, "x=1", "application/x-www-form-urlencoded", 400},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			header := http.Header{"Authorization": {"Bearer " + good}}
			if test.media != "" {
				header.Set("Content-Type", test.media)
			}
			wantProblem(t, s.send(request{method: http.MethodPost, path: test.path, body: test.body, header: header}), test.status, "")
			if !s.opens(v.cookie("_session")) {
				t.Fatal("the session has ended")
			}
		})
	}
	t.Run("by GET", func(t *testing.T) {
		wantProblem(t, s.in(t).call(http.MethodGet, backChannelPath+"?"+form, "", ""), http.StatusMethodNotAllowed, "method_not_allowed")
	})
	// The same one without a flaw ends it, so each was refused for its own.
	sent := time.Now()
	a := s.backChannel(good)
	wantStatus(t, a, http.StatusOK)
	if len(a.body) != 0 || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("answered %q, %v", a.body, a.header)
	}
	if s.opens(v.cookie("_session")) || time.Since(sent) > time.Second {
		t.Errorf("the session goes on, or it took %s", time.Since(sent))
	}
	s.noTokenIn("the log", s.log.String(), i)
}

// A sign-out ends what it names, all of that, nothing else, and once.
func TestAttackSignOutReach(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	s := startAt(t, i)
	signedIn := func(subject, sid string) string {
		v := s.visitor()
		v.signIn(i, "/", signingIn{subject: subject, sid: sid})
		return v.cookie("_session")
	}
	one, two, three := signedIn("alice", "s1"), signedIn("alice", "s1"), signedIn("alice", "s2")
	bob := signedIn("bob", "s3")
	open := func() string { return fmt.Sprint(s.opens(one), s.opens(two), s.opens(three), s.opens(bob)) }

	wantStatus(t, s.backChannel(i.logoutToken(t, "s1", nil)), http.StatusOK)
	if got := open(); got != "false false true true" {
		t.Errorf("after the end of s1: %s", got)
	}
	wantStatus(t, s.backChannel(i.logoutToken(t, "unknown", nil)), http.StatusOK)
	one = signedIn("alice", "s4")
	bySubject := i.logoutToken(t, "", map[string]any{"sid": nil, "sub": "alice"})
	wantStatus(t, s.backChannel(bySubject), http.StatusOK)
	if got := open(); got != "false false false true" {
		t.Errorf("after the end of alice: %s", got)
	}
	// She is back; the same token again is yesterday's news.
	one, two = signedIn("alice", "s5"), signedIn("alice", "")
	wantStatus(t, s.backChannel(bySubject), http.StatusOK)
	if got := open(); got != "true true false true" {
		t.Errorf("after the replay: %s", got)
	}
	// A new one works, and needs no sid to have been known.
	wantStatus(t, s.backChannel(i.logoutToken(t, "", map[string]any{"sid": nil, "sub": "alice"})), http.StatusOK)
	if got := open(); got != "false false false true" {
		t.Errorf("after the second end of alice: %s", got)
	}
}
