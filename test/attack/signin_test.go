package attack_test

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

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// Tokens that are not for this sign-in sign nobody in, whether the issuer or an impostor
// sends them.
func TestAttackTokensOfSignIn(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	const secret = "a client's secret that is long enough for HS256"
	s := system.StartAt(t, i, "OIDC_CLIENT_SECRET="+secret)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	kit.Must(t, err)
	der, err := x509.MarshalPKIXPublicKey(&i.Key.PublicKey)
	kit.Must(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	past := time.Now().Add(-time.Second).Unix()
	id := func(name string, value any) system.SigningIn {
		return system.SigningIn{ID: map[string]any{name: value}}
	}
	access := func(name string, value any) system.SigningIn {
		return system.SigningIn{Access: map[string]any{name: value}}
	}
	answer := func(name string, value any) system.SigningIn {
		return system.SigningIn{Answer: map[string]any{name: value}}
	}
	signed := func(by func(claims map[string]any) string) system.SigningIn { return system.SigningIn{IDToken: by} }
	kid := map[jose.HeaderKey]any{"kid": "k1"}
	for name, who := range map[string]system.SigningIn{
		"another nonce":                id("nonce", "another"),
		"no nonce":                     id("nonce", nil),
		"an empty nonce":               id("nonce", ""),
		"ID token for another client":  id("aud", "another"),
		"ID token for several others":  id("aud", []string{"another", "miniserver"}),
		"ID token for nobody":          id("aud", nil),
		"ID token of another issuer":   id("iss", "https://evil.example"),
		"ID token issued to another":   id("azp", "purchase-service"),
		"ID token for two, by another": {ID: map[string]any{"aud": []string{"miniserver-web", "purchase-service"}, "azp": "purchase-service"}},
		"ID token about somebody else": id("sub", "bob"),
		"ID token about nobody":        id("sub", nil),
		"ID token expired":             id("exp", past),
		"ID token without expiry":      id("exp", nil),
		"ID token not valid yet":       id("nbf", time.Now().Add(time.Hour).Unix()),
		"ID token with alg none": signed(func(c map[string]any) string {
			return system.Part(map[string]any{"alg": "none"}) + "." + system.Part(c) + "."
		}),
		"ID token HS256, public key":      signed(func(c map[string]any) string { return system.Sign(t, jose.HS256, publicPEM, c, kid) }),
		"ID token HS256, client's secret": signed(func(c map[string]any) string { return system.Sign(t, jose.HS256, []byte(secret), c, kid) }),
		"ID token signed by somebody": signed(func(c map[string]any) string {
			return system.Sign(t, jose.RS256, jose.JSONWebKey{Key: other, KeyID: "k1"}, c, nil)
		}),
		"ID token signed by its own jwk": signed(func(c map[string]any) string {
			return system.Sign(t, jose.RS256, other, c, map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: &other.PublicKey}})
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
			s := s.In(t)
			who.Subject = "alice"
			v := s.Visitor()
			answered := i.Signs(t, v.Begin("/docs"), who)
			system.WantProblem(t, v.ComeBack(answered), http.StatusBadRequest, "sign_in_failed")
			v.Nobody()
		})
	}
	if n := s.Count(`SELECT count(*) FROM account.users`); n != 0 {
		t.Errorf("refused sign-ins made %d accounts", n)
	}
	// Each was refused for its own flaw: without a flaw, the sign-in succeeds.
	for name, who := range map[string]system.SigningIn{
		"as it should be": {}, "ID token without azp": id("azp", nil), "several audiences": id("aud", []string{"miniserver-web", "another"}),
		"no type": {ID: map[string]any{"typ": nil}, Access: map[string]any{"typ": nil}},
	} {
		v := s.Visitor()
		who.Subject = "alice"
		if where := v.SignIn(i, "/docs", who); where != "/docs" || v.Whoami() == "" {
			t.Errorf("%s: led to %s, want a session at /docs", name, where)
		}
	}
	noTokenIn(s, "the log", s.Log.String(), i)
}

// noTokenIn fails when text contains a token that i issued, or the client's secret.
func noTokenIn(s *system.System, what, text string, i *system.CodeIssuer) {
	s.T.Helper()
	i.Mutex.Lock()
	defer i.Mutex.Unlock()
	for _, token := range append(i.Made, s.Settings().OIDCClientSecret) {
		for _, piece := range strings.Split(token, ".") {
			// The first part of a token is no secret: it is the same in all.
			if len(piece) > 40 || strings.HasPrefix(piece, "refresh-") {
				if at := strings.Index(text, piece); at >= 0 {
					s.T.Errorf("a token is in %s: %s", what, text[max(0, at-200):at+10])
				}
			}
		}
		if strings.Contains(text, token) {
			s.T.Errorf("a secret is in %s", what)
		}
	}
}
