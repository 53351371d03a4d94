package functions_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// An issuer, or somebody who speaks in its name, gets nobody in with tokens that
// are not for this sign-in.
func TestAttackTokensOfSignIn(t *testing.T) {
	t.Parallel()
	i := newCodeIssuer(t)
	const secret = "a client's secret that is long enough for HS256"
	s := startAt(t, i, "OIDC_CLIENT_SECRET="+secret)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	der, err := x509.MarshalPKIXPublicKey(&i.key.PublicKey)
	must(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	past := time.Now().Add(-time.Second).Unix()
	id := func(name string, value any) signingIn { return signingIn{id: map[string]any{name: value}} }
	access := func(name string, value any) signingIn { return signingIn{access: map[string]any{name: value}} }
	answer := func(name string, value any) signingIn { return signingIn{answer: map[string]any{name: value}} }
	signed := func(by func(claims map[string]any) string) signingIn { return signingIn{idToken: by} }
	kid := map[jose.HeaderKey]any{"kid": "k1"}
	for name, who := range map[string]signingIn{
		"another nonce":                   id("nonce", "another"),
		"no nonce":                        id("nonce", nil),
		"an empty nonce":                  id("nonce", ""),
		"ID token for another client":     id("aud", "another"),
		"ID token for several others":     id("aud", []string{"another", "miniserver"}),
		"ID token for nobody":             id("aud", nil),
		"ID token of another issuer":      id("iss", "https://evil.example"),
		"ID token issued to another":      id("azp", "purchase-service"),
		"ID token for two, by another":    {id: map[string]any{"aud": []string{"miniserver-web", "purchase-service"}, "azp": "purchase-service"}},
		"ID token about somebody else":    id("sub", "bob"),
		"ID token about nobody":           id("sub", nil),
		"ID token expired":                id("exp", past),
		"ID token without expiry":         id("exp", nil),
		"ID token not valid yet":          id("nbf", time.Now().Add(time.Hour).Unix()),
		"ID token with alg none":          signed(func(c map[string]any) string { return part(map[string]any{"alg": "none"}) + "." + part(c) + "." }),
		"ID token HS256, public key":      signed(func(c map[string]any) string { return sign(t, jose.HS256, publicPEM, c, kid) }),
		"ID token HS256, client's secret": signed(func(c map[string]any) string { return sign(t, jose.HS256, []byte(secret), c, kid) }),
		"ID token signed by somebody": signed(func(c map[string]any) string {
			return sign(t, jose.RS256, jose.JSONWebKey{Key: other, KeyID: "k1"}, c, nil)
		}),
		"ID token signed by its own jwk": signed(func(c map[string]any) string {
			return sign(t, jose.RS256, other, c, map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: &other.PublicKey}})
		}),
		"ID token is no token":              answer("id_token", "x"),
		"no ID token":                       answer("id_token", nil),
		"ID token is an object":             answer("id_token", map[string]any{"sub": "alice"}),
		"access token for another audience": access("aud", "another"),
		"access token of another client":    access("azp", "evil-app"),
		"access token of no client":         access("azp", nil),
		"access token about somebody else":  access("sub", "bob"),
		"access token expired":              access("exp", past),
		"access token of another issuer":    access("iss", "https://evil.example"),
		"access token is an ID token":       access("typ", "ID"),
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			who.subject = "alice"
			v := s.visitor()
			answered := i.signs(t, v.begin("/docs"), who)
			wantProblem(t, v.comeBack(answered), http.StatusBadRequest, "sign_in_failed")
			v.nobody()
		})
	}
	if n := s.count(`SELECT count(*) FROM account.users`); n != 0 {
		t.Errorf("refused sign-ins made %d accounts", n)
	}
	// Each was refused for its own flaw: without one, it is a sign-in.
	for name, who := range map[string]signingIn{
		"as it should be": {}, "ID token without azp": id("azp", nil), "several audiences": id("aud", []string{"miniserver-web", "another"}),
		"no type": {id: map[string]any{"typ": nil}, access: map[string]any{"typ": nil}},
	} {
		v := s.visitor()
		who.subject = "alice"
		if where := v.signIn(i, "/docs", who); where != "/docs" || v.whoami() == "" {
			t.Errorf("%s: led to %s", name, where)
		}
	}
	s.noTokenIn("the log", s.log.String(), i)
}

// noTokenIn fails when a token that i gave out, or the client's secret, is in text.
func (s *system) noTokenIn(what, text string, i *codeIssuer) {
	s.t.Helper()
	i.mutex.Lock()
	defer i.mutex.Unlock()
	for _, token := range append(i.made, s.runtime.Settings.OIDCClientSecret) {
		for _, piece := range strings.Split(token, ".") {
			// The first part of a token says nothing: it is the same of all.
			if len(piece) > 40 || strings.HasPrefix(piece, "refresh-") {
				if at := strings.Index(text, piece); at >= 0 {
					s.t.Errorf("a token is in %s: %s", what, text[max(0, at-200):at+10])
				}
			}
		}
		if strings.Contains(text, token) {
			s.t.Errorf("a secret is in %s", what)
		}
	}
}
