package attack_test

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

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// Only the issuer ends sessions, with a token made for that purpose and for us.
func TestAttackBackChannel(t *testing.T) {
	t.Parallel()
	i, other := system.NewCodeIssuer(t), system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	v := s.Visitor()
	v.SignIn(i, "/", system.SigningIn{Subject: "alice", Sid: "s1"})
	access, id := i.Made[0], i.Made[1]
	attacker, err := rsa.GenerateKey(rand.Reader, 2048)
	kit.Must(t, err)
	der, err := x509.MarshalPKIXPublicKey(&i.Key.PublicKey)
	kit.Must(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	with := func(name string, value any) string { return i.LogoutToken(t, "s1", map[string]any{name: value}) }
	good := i.LogoutToken(t, "s1", nil)
	pieces := strings.Split(good, ".")
	now := time.Now()
	for name, token := range map[string]string{
		"alg none":                   system.Part(map[string]any{"alg": "none", "kid": "k1"}) + "." + system.Part(i.LogoutClaims("s1", nil)) + ".",
		"no signature":               pieces[0] + "." + pieces[1] + ".",
		"other claims":               pieces[0] + "." + system.Part(i.LogoutClaims("s1", nil)) + "." + pieces[2],
		"HS256 with the public key":  system.Sign(t, jose.HS256, publicPEM, i.LogoutClaims("s1", nil), map[jose.HeaderKey]any{"kid": "k1"}),
		"another key":                system.Sign(t, jose.RS256, jose.JSONWebKey{Key: attacker, KeyID: "k1"}, i.LogoutClaims("s1", nil), nil),
		"another key, its own id":    system.Sign(t, jose.RS256, jose.JSONWebKey{Key: attacker, KeyID: "k2"}, i.LogoutClaims("s1", nil), nil),
		"another key, in its header": system.Sign(t, jose.RS256, attacker, i.LogoutClaims("s1", nil), map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: &attacker.PublicKey}}),
		"another issuer":             with("iss", other.URL),
		"no issuer":                  with("iss", nil),
		"for another client":         with("aud", "another"),
		"for the API":                with("aud", "miniserver"),
		"for nobody":                 with("aud", nil),
		"no events":                  with("events", nil),
		"events of another kind":     with("events", map[string]any{"http://schemas.openid.net/event/other": map[string]any{}}),
		"events that are a text":     with("events", system.LogoutEvent),
		"a nonce":                    with("nonce", "n"),
		"an empty nonce":             with("nonce", ""),
		"expired":                    with("exp", now.Add(-time.Second).Unix()),
		"never expires":              with("exp", nil),
		"issued an hour ago":         with("iat", now.Add(-time.Hour).Unix()),
		"issued at no time":          with("iat", nil),
		"no id":                      with("jti", nil),
		"neither sid nor sub":        with("sid", nil),
		"sid and sub empty":          i.LogoutToken(t, "", map[string]any{"sub": ""}),
		"an ID token instead":        id,
		"an access token instead":    access,
		"garbage":                    "x",
		"empty":                      "",
		"9 kB":                       strings.Repeat("x", 9<<10),
	} {
		t.Run(name, func(t *testing.T) {
			a := s.In(t).BackChannel(token)
			system.WantProblem(t, a, http.StatusBadRequest, "logout_token_invalid")
			if !s.In(t).Opens(v.Cookie("_session")) {
				t.Fatal("the session has ended")
			}
		})
	}
	form := url.Values{"logout_token": {good}}.Encode()
	for name, test := range map[string]struct {
		path, body, media string
		status            int
	}{
		"as JSON":             {system.BackChannelPath, `{"logout_token":"` + good + `"}`, "application/json", 415},
		"as text":             {system.BackChannelPath, form, "text/plain", 415},
		"in parts":            {system.BackChannelPath, "--x\r\nContent-Disposition: form-data; name=\"logout_token\"\r\n\r\n" + good + "\r\n--x--\r\n", "multipart/form-data; boundary=x", 415},
		"of no type":          {system.BackChannelPath, form, "", 415},
		"70 kB":               {system.BackChannelPath, form + "&x=" + strings.Repeat("x", 70<<10), "application/x-www-form-urlencoded", 413},
		"in the query":        {system.BackChannelPath + "?" + form, "", "application/x-www-form-urlencoded", 400},
		"a broken form":       {system.BackChannelPath, "logout_token=%zz" + good, "application/x-www-form-urlencoded", 400},
		"under another name":  {system.BackChannelPath, url.Values{"token": {good}, "id_token": {good}}.Encode(), "application/x-www-form-urlencoded", 400},
		"as a bearer's token": {system.BackChannelPath, "x=1", "application/x-www-form-urlencoded", 400},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			header := http.Header{"Authorization": {"Bearer " + good}}
			if test.media != "" {
				header.Set("Content-Type", test.media)
			}
			system.WantProblem(t, s.Send(system.Request{Method: http.MethodPost, Path: test.path, Body: test.body, Header: header}), test.status, "")
			if !s.Opens(v.Cookie("_session")) {
				t.Fatal("the session has ended")
			}
		})
	}
	t.Run("by GET", func(t *testing.T) {
		system.WantProblem(t, s.In(t).Call(http.MethodGet, system.BackChannelPath+"?"+form, "", ""), http.StatusMethodNotAllowed, "method_not_allowed")
	})
	// The same token without a flaw ends it, so each was refused for its own flaw.
	sent := time.Now()
	a := s.BackChannel(good)
	system.WantStatus(t, a, http.StatusOK)
	if len(a.Body) != 0 || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("answered %q, %v, want no body and no-store", a.Body, a.Header)
	}
	if s.Opens(v.Cookie("_session")) || time.Since(sent) > time.Second {
		t.Errorf("the session is still open, or ending it took %s", time.Since(sent))
	}
	noTokenIn(s, "the log", s.Log.String(), i)
}

// A sign-out ends all sessions that it names, no others, and once.
func TestAttackSignOutReach(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	signedIn := func(subject, sid string) string {
		v := s.Visitor()
		v.SignIn(i, "/", system.SigningIn{Subject: subject, Sid: sid})
		return v.Cookie("_session")
	}
	one, two, three := signedIn("alice", "s1"), signedIn("alice", "s1"), signedIn("alice", "s2")
	bob := signedIn("bob", "s3")
	open := func() string { return fmt.Sprint(s.Opens(one), s.Opens(two), s.Opens(three), s.Opens(bob)) }

	system.WantStatus(t, s.BackChannel(i.LogoutToken(t, "s1", nil)), http.StatusOK)
	if got := open(); got != "false false true true" {
		t.Errorf("after the end of s1, open are: %s", got)
	}
	system.WantStatus(t, s.BackChannel(i.LogoutToken(t, "unknown", nil)), http.StatusOK)
	one = signedIn("alice", "s4")
	bySubject := i.LogoutToken(t, "", map[string]any{"sid": nil, "sub": "alice"})
	system.WantStatus(t, s.BackChannel(bySubject), http.StatusOK)
	if got := open(); got != "false false false true" {
		t.Errorf("after the end of alice's, open are: %s", got)
	}
	// She signs in again; the same token again ends nothing.
	one, two = signedIn("alice", "s5"), signedIn("alice", "")
	system.WantStatus(t, s.BackChannel(bySubject), http.StatusOK)
	if got := open(); got != "true true false true" {
		t.Errorf("after the replay, open are: %s", got)
	}
	// A new token works, and needs no sid that is known.
	system.WantStatus(t, s.BackChannel(i.LogoutToken(t, "", map[string]any{"sid": nil, "sub": "alice"})), http.StatusOK)
	if got := open(); got != "false false false true" {
		t.Errorf("after the second end of alice's, open are: %s", got)
	}
}
