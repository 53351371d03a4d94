package functions_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// signedIssuer is an issuer whose tokens a test writes itself.
type signedIssuer struct {
	url     string
	key     *rsa.PrivateKey
	fetched atomic.Int64 // how often its keys were asked for
}

func newSignedIssuer(t testing.TB) *signedIssuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	i := &signedIssuer{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": i.url, "jwks_uri": i.url + "/keys", "token_endpoint": i.url + "/token", "authorization_endpoint": i.url + "/authorize",
			"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		i.fetched.Add(1)
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k1", Algorithm: "RS256", Use: "sig"}}})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	i.url = server.URL
	return i
}

// claims of an access token that may do anything, with some changed; a nil
// leaves one out.
func (i *signedIssuer) claims(change map[string]any) map[string]any {
	now := time.Now()
	c := map[string]any{
		"iss": i.url, "sub": "svc", "aud": []string{"miniserver"}, "azp": "purchase-service", "typ": "Bearer",
		"iat": now.Unix(), "exp": now.Add(time.Minute).Unix(), "jti": fmt.Sprint(now.UnixNano()),
		"realm_access": map[string]any{"roles": []string{"entitlement-writer", "operator"}},
	}
	maps.Copy(c, change)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

func sign(t testing.TB, algorithm jose.SignatureAlgorithm, key any, claims map[string]any, header map[jose.HeaderKey]any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	for name, value := range header {
		options.WithHeader(name, value)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	must(t, err)
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	must(t, err)
	return token
}

func (i *signedIssuer) token(t testing.TB, change map[string]any) string {
	t.Helper()
	return sign(t, jose.RS256, jose.JSONWebKey{Key: i.key, KeyID: "k1"}, i.claims(change), nil)
}

// userID registers the owner of a token and returns their user id.
func (s *system) userID(token string) string {
	s.t.Helper()
	a := s.call(http.MethodPost, "/v1/me", token, "")
	wantStatus(s.t, a, http.StatusOK)
	id, _ := a.json(s.t)["user_id"].(string)
	return id
}

// player returns an access token of a player.
func (i *signedIssuer) player(t testing.TB, user string) string {
	t.Helper()
	return i.token(t, map[string]any{"sub": user, "realm_access": map[string]any{"roles": []string{"player"}}})
}

func part(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// Whoever has no token of this issuer, for this audience, that is still good,
// gets 401 and nothing else happens.
func TestBadToken(t *testing.T) {
	t.Parallel()
	issuer, other := newSignedIssuer(t), newSignedIssuer(t)
	s := setup(t, "WAKES=false", "OIDC_ISSUER="+issuer.url)
	good := issuer.token(t, nil)
	publicDER, err := x509.MarshalPKIXPublicKey(&issuer.key.PublicKey)
	must(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER})
	attacker, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	attackerPublic := jose.JSONWebKey{Key: &attacker.PublicKey, KeyID: "k1", Algorithm: "RS256"}
	none := func(algorithm string) string {
		return part(map[string]any{"alg": algorithm, "kid": "k1", "typ": "JWT"}) + "." + part(issuer.claims(nil)) + "."
	}
	pieces := strings.Split(good, ".")
	tests := map[string]string{
		"no token at all":           "",
		"garbage":                   "Bearer garbage",
		"three parts of garbage":    "Bearer a.b.c",
		"empty":                     "Bearer ",
		"scheme only":               "Bearer",
		"another scheme":            "Basic " + good,
		"no scheme":                 good,
		"a password":                "Basic YTpi",
		"two tokens":                "Bearer " + good + " " + good,
		"two spaces":                "Bearer  " + good + "x",
		"far too long":              "Bearer " + strings.Repeat("x", 9<<10),
		"cut off":                   "Bearer " + good[:len(good)-10],
		"no signature":              "Bearer " + pieces[0] + "." + pieces[1] + ".",
		"other claims":              "Bearer " + pieces[0] + "." + part(issuer.claims(map[string]any{"sub": "root"})) + "." + pieces[2],
		"alg none":                  "Bearer " + none("none"),
		"alg None":                  "Bearer " + none("None"),
		"alg empty":                 "Bearer " + none(""),
		"HS256 with the PEM":        "Bearer " + sign(t, jose.HS256, publicPEM, issuer.claims(nil), map[jose.HeaderKey]any{"kid": "k1"}),
		"HS256 with the DER":        "Bearer " + sign(t, jose.HS256, publicDER, issuer.claims(nil), map[jose.HeaderKey]any{"kid": "k1"}),
		"HS256 with the modulus":    "Bearer " + sign(t, jose.HS256, issuer.key.N.Bytes(), issuer.claims(nil), map[jose.HeaderKey]any{"kid": "k1"}),
		"another key":               "Bearer " + sign(t, jose.RS256, jose.JSONWebKey{Key: attacker, KeyID: "k1"}, issuer.claims(nil), nil),
		"another key, unknown id":   "Bearer " + sign(t, jose.RS256, jose.JSONWebKey{Key: attacker, KeyID: "k2"}, issuer.claims(nil), nil),
		"attacker's jwk":            "Bearer " + sign(t, jose.RS256, attacker, issuer.claims(nil), map[jose.HeaderKey]any{"jwk": attackerPublic, "kid": "k1"}),
		"attacker's jku":            "Bearer " + sign(t, jose.RS256, attacker, issuer.claims(nil), map[jose.HeaderKey]any{"jku": other.url + "/keys", "kid": "k1"}),
		"RS512":                     "Bearer " + sign(t, jose.RS512, jose.JSONWebKey{Key: issuer.key, KeyID: "k1"}, issuer.claims(nil), nil),
		"expired":                   "Bearer " + issuer.token(t, map[string]any{"exp": time.Now().Add(-time.Second).Unix()}),
		"expired long ago":          "Bearer " + issuer.token(t, map[string]any{"exp": 1}),
		"never expires":             "Bearer " + issuer.token(t, map[string]any{"exp": nil}),
		"not yet valid":             "Bearer " + issuer.token(t, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}),
		"another audience":          "Bearer " + issuer.token(t, map[string]any{"aud": []string{"account"}}),
		"audience in capitals":      "Bearer " + issuer.token(t, map[string]any{"aud": "MINISERVER"}),
		"no audience":               "Bearer " + issuer.token(t, map[string]any{"aud": nil}),
		"another issuer's name":     "Bearer " + issuer.token(t, map[string]any{"iss": other.url}),
		"another issuer":            "Bearer " + other.token(t, nil),
		"another issuer, our name":  "Bearer " + other.token(t, map[string]any{"iss": issuer.url}),
		"issuer with a slash":       "Bearer " + issuer.token(t, map[string]any{"iss": issuer.url + "/"}),
		"no issuer":                 "Bearer " + issuer.token(t, map[string]any{"iss": nil}),
		"ID token":                  "Bearer " + issuer.token(t, map[string]any{"typ": "ID"}),
		"logout token":              "Bearer " + issuer.token(t, map[string]any{"typ": "Logout"}),
		"refresh token":             "Bearer " + issuer.token(t, map[string]any{"typ": "Refresh"}),
		"no subject":                "Bearer " + issuer.token(t, map[string]any{"sub": nil}),
		"roles that are no list":    "Bearer " + issuer.token(t, map[string]any{"realm_access": map[string]any{"roles": "operator"}}),
		"roles that are no strings": "Bearer " + issuer.token(t, map[string]any{"realm_access": map[string]any{"roles": []int{1}}}),
	}
	for name, authorization := range tests {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			header := http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"k1"}}
			code := "token_invalid"
			if authorization == "" {
				code = "token_missing"
			} else {
				header.Set("Authorization", authorization)
			}
			s.untouched(func() {
				a := s.send(request{method: http.MethodPost, path: grantsPath, header: header, body: changeBody("u_1", "item1", "x", "y")})
				wantProblem(t, a, http.StatusUnauthorized, code)
				if scheme := a.header.Get("WWW-Authenticate"); !strings.HasPrefix(scheme, "Bearer") {
					t.Errorf("WWW-Authenticate %q", scheme)
				}
			})
		})
	}
	t.Run("two headers", func(t *testing.T) {
		header := http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"k1"}, "Authorization": {"Bearer " + good, "Bearer " + good}}
		a := s.in(t).send(request{method: http.MethodPost, path: grantsPath, header: header, body: changeBody("u_1", "item1", "x", "y")})
		wantProblem(t, a, http.StatusUnauthorized, "token_invalid")
	})
	t.Run("in the query", func(t *testing.T) {
		a := s.in(t).call(http.MethodGet, "/v1/users/u_1/entitlements?access_token="+good, "", "")
		wantProblem(t, a, http.StatusUnauthorized, "token_missing")
	})
	// They were refused for what was wrong with them: the same token without it is good.
	for name, token := range map[string]string{
		"good": good, "audience as text": issuer.token(t, map[string]any{"aud": "miniserver"}),
		"several audiences": issuer.token(t, map[string]any{"aud": []string{"account", "miniserver"}}),
		"PS256":             sign(t, jose.PS256, jose.JSONWebKey{Key: issuer.key, KeyID: "k1"}, issuer.claims(nil), nil),
	} {
		if a := s.call(http.MethodGet, "/v1/users/u_1/entitlements", token, ""); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	lower := s.send(request{method: http.MethodGet, path: "/v1/users/u_1/entitlements", header: http.Header{"Authorization": {"bearer " + good}}})
	wantStatus(t, lower, http.StatusOK) // the scheme has no case (RFC 9110, 11.1)
}

// A token that was believed once is not believed after its end.
func TestTokenExpiresWhileKnown(t *testing.T) {
	t.Parallel()
	issuer := newSignedIssuer(t)
	s := setup(t, "WAKES=false", "OIDC_ISSUER="+issuer.url)
	token := issuer.token(t, map[string]any{"exp": time.Now().Add(2 * time.Second).Unix()})
	wantStatus(t, s.call(http.MethodGet, "/v1/users/u_1/entitlements", token, ""), http.StatusOK)
	eventually(t, 10*time.Second, "the token has expired", func() bool {
		a := s.call(http.MethodGet, "/v1/users/u_1/entitlements", token, "")
		return a.status == http.StatusUnauthorized
	})
}

// A token with roles that do not suffice is 403, on every route that asks for one.
func TestRoles(t *testing.T) {
	t.Parallel()
	issuer := newSignedIssuer(t)
	s := setup(t, "WAKES=false", "OIDC_ISSUER="+issuer.url)
	with := func(roles ...string) string {
		return issuer.token(t, map[string]any{"sub": "somebody", "realm_access": map[string]any{"roles": roles}})
	}
	for _, test := range []struct {
		method, path string
		allowed      string
	}{
		{"POST", grantsPath, "entitlement-writer"}, {"POST", revokesPath, "entitlement-writer"}, {"POST", eventsPath, "entitlement-writer"},
		{"GET", "/v1/users/u_1/entitlements/item1/history", "operator"}, {"GET", "/debug/notification/inbox/u_1", "operator"},
	} {
		for _, role := range []string{"player", "operator", "entitlement-writer", "Operator", "operator ", "admin"} {
			a := s.call(test.method, test.path, with(role), "")
			if role == test.allowed {
				if a.status == http.StatusForbidden || a.status == http.StatusUnauthorized {
					t.Errorf("%s %s as %s: %d", test.method, test.path, role, a.status)
				}
				continue
			}
			wantProblem(t, a, http.StatusForbidden, "role_missing")
		}
		wantProblem(t, s.call(test.method, test.path, with(), ""), http.StatusForbidden, "role_missing")
		without := issuer.token(t, map[string]any{"realm_access": nil, "roles": []string{test.allowed}})
		wantProblem(t, s.call(test.method, test.path, without, ""), http.StatusForbidden, "role_missing")
	}
}

// Players read what is theirs. What is another's answers as if it were not there,
// whether or not it is.
func TestWhoReadsWhat(t *testing.T) {
	t.Parallel()
	issuer := newSignedIssuer(t)
	s := setup(t, "WAKES=false", "OIDC_ISSUER="+issuer.url)
	s.writer, s.ops = issuer.token(t, nil), issuer.token(t, map[string]any{"realm_access": map[string]any{"roles": []string{"operator"}}})
	owner, other := issuer.player(t, "s_1"), issuer.player(t, "s_2")
	user := s.userID(owner)
	wantStatus(t, s.grant("k1", user, "item1"), http.StatusOK)
	list := "/v1/users/" + user + "/entitlements"
	one, missing := list+"/item1", list+"/none"
	expired := issuer.token(t, map[string]any{"sub": "s_1", "exp": time.Now().Add(-time.Minute).Unix()})
	writer := issuer.token(t, map[string]any{"realm_access": map[string]any{"roles": []string{"entitlement-writer"}}})
	for _, test := range []struct {
		path                                            string
		owner, other, anonymous, operator, writer, late int
	}{
		{list, 200, 404, 401, 200, 200, 401},
		{one, 200, 404, 401, 200, 200, 401},
		{missing, 404, 404, 401, 404, 404, 401},
		{one + "/history", 403, 403, 401, 200, 403, 401},
		{"/debug/notification/inbox/" + user, 403, 403, 401, 200, 403, 401},
	} {
		for _, caller := range []struct {
			name, token string
			status      int
		}{
			{"owner", owner, test.owner}, {"other", other, test.other}, {"anonymous", "", test.anonymous},
			{"operator", s.ops, test.operator}, {"writer", writer, test.writer}, {"expired", expired, test.late},
		} {
			if a := s.call(http.MethodGet, test.path, caller.token, ""); a.status != caller.status {
				t.Errorf("%s as %s: %d, want %d", test.path, caller.name, a.status, caller.status)
			}
		}
	}
	there, not := s.call(http.MethodGet, one, other, ""), s.call(http.MethodGet, missing, other, "")
	if string(there.body) != string(not.body) {
		t.Errorf("an oracle: %s, %s", there.body, not.body)
	}
	// Ids have one spelling: nothing near it is one's own.
	for _, near := range []string{strings.ToUpper(user), user + "%20", user + "%2F", "s_1", user[:len(user)-1]} {
		if a := s.call(http.MethodGet, "/v1/users/"+near+"/entitlements", owner, ""); a.status == http.StatusOK {
			t.Errorf("%s was read", near)
		}
	}
}

// Tokens with key ids that nobody knows do not make us ask the issuer each time.
func TestUnknownKeysAreAskedForOnce(t *testing.T) {
	t.Parallel()
	issuer := newSignedIssuer(t)
	s := setup(t, "WAKES=false", "OIDC_ISSUER="+issuer.url)
	wantStatus(t, s.call(http.MethodGet, "/v1/users/u_1/entitlements", issuer.token(t, nil), ""), http.StatusOK)
	before := issuer.fetched.Load()
	for i := range 20 {
		token := sign(t, jose.RS256, jose.JSONWebKey{Key: issuer.key, KeyID: fmt.Sprint("unknown", i)}, issuer.claims(nil), nil)
		wantProblem(t, s.call(http.MethodGet, "/v1/users/u_1/entitlements", token, ""), http.StatusUnauthorized, "token_invalid")
	}
	if n := issuer.fetched.Load() - before; n > 1 {
		t.Errorf("20 tokens with unknown keys made %d fetches; one in 30 s is allowed", n)
	}
}
