package signin_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A request without a valid token of this issuer, for this audience, is answered 401 and
// has no effect.
func TestBadToken(t *testing.T) {
	t.Parallel()
	issuer, other := system.NewPeople(t), system.NewPeople(t)
	var err error
	other.Key, err = rsa.GenerateKey(rand.Reader, 2048) // the test issuers share theirs
	kit.Must(t, err)
	s := system.Start(t, "WAKES=false", "OIDC_ISSUER="+issuer.URL)
	good := issuer.Token(t, nil)
	publicDER, err := x509.MarshalPKIXPublicKey(&issuer.Key.PublicKey)
	kit.Must(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER})
	attacker, err := rsa.GenerateKey(rand.Reader, 2048)
	kit.Must(t, err)
	attackerPublic := jose.JSONWebKey{Key: &attacker.PublicKey, KeyID: "k1", Algorithm: "RS256"}
	none := func(algorithm string) string {
		return system.Part(map[string]any{"alg": algorithm, "kid": "k1", "typ": "JWT"}) + "." + system.Part(issuer.Claims(nil)) + "."
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
		"other claims":              "Bearer " + pieces[0] + "." + system.Part(issuer.Claims(map[string]any{"sub": "root"})) + "." + pieces[2],
		"alg none":                  "Bearer " + none("none"),
		"alg None":                  "Bearer " + none("None"),
		"alg empty":                 "Bearer " + none(""),
		"HS256 with the PEM":        "Bearer " + system.Sign(t, jose.HS256, publicPEM, issuer.Claims(nil), map[jose.HeaderKey]any{"kid": "k1"}),
		"HS256 with the DER":        "Bearer " + system.Sign(t, jose.HS256, publicDER, issuer.Claims(nil), map[jose.HeaderKey]any{"kid": "k1"}),
		"HS256 with the modulus":    "Bearer " + system.Sign(t, jose.HS256, issuer.Key.N.Bytes(), issuer.Claims(nil), map[jose.HeaderKey]any{"kid": "k1"}),
		"another key":               "Bearer " + system.Sign(t, jose.RS256, jose.JSONWebKey{Key: attacker, KeyID: "k1"}, issuer.Claims(nil), nil),
		"another key, unknown id":   "Bearer " + system.Sign(t, jose.RS256, jose.JSONWebKey{Key: attacker, KeyID: "k2"}, issuer.Claims(nil), nil),
		"attacker's jwk":            "Bearer " + system.Sign(t, jose.RS256, attacker, issuer.Claims(nil), map[jose.HeaderKey]any{"jwk": attackerPublic, "kid": "k1"}),
		"attacker's jku":            "Bearer " + system.Sign(t, jose.RS256, attacker, issuer.Claims(nil), map[jose.HeaderKey]any{"jku": other.URL + "/keys", "kid": "k1"}),
		"RS512":                     "Bearer " + system.Sign(t, jose.RS512, jose.JSONWebKey{Key: issuer.Key, KeyID: "k1"}, issuer.Claims(nil), nil),
		"expired":                   "Bearer " + issuer.Token(t, map[string]any{"exp": time.Now().Add(-time.Second).Unix()}),
		"expired long ago":          "Bearer " + issuer.Token(t, map[string]any{"exp": 1}),
		"never expires":             "Bearer " + issuer.Token(t, map[string]any{"exp": nil}),
		"not yet valid":             "Bearer " + issuer.Token(t, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}),
		"another audience":          "Bearer " + issuer.Token(t, map[string]any{"aud": []string{"account"}}),
		"audience in capitals":      "Bearer " + issuer.Token(t, map[string]any{"aud": "MINISERVER"}),
		"no audience":               "Bearer " + issuer.Token(t, map[string]any{"aud": nil}),
		"another issuer's name":     "Bearer " + issuer.Token(t, map[string]any{"iss": other.URL}),
		"another issuer":            "Bearer " + other.Token(t, nil),
		"another issuer, our name":  "Bearer " + other.Token(t, map[string]any{"iss": issuer.URL}),
		"issuer with a slash":       "Bearer " + issuer.Token(t, map[string]any{"iss": issuer.URL + "/"}),
		"no issuer":                 "Bearer " + issuer.Token(t, map[string]any{"iss": nil}),
		"ID token":                  "Bearer " + issuer.Token(t, map[string]any{"typ": "ID"}),
		"logout token":              "Bearer " + issuer.Token(t, map[string]any{"typ": "Logout"}),
		"refresh token":             "Bearer " + issuer.Token(t, map[string]any{"typ": "Refresh"}),
		"no subject":                "Bearer " + issuer.Token(t, map[string]any{"sub": nil}),
		"roles that are no list":    "Bearer " + issuer.Token(t, map[string]any{"realm_access": map[string]any{"roles": "operator"}}),
		"roles that are no strings": "Bearer " + issuer.Token(t, map[string]any{"realm_access": map[string]any{"roles": []int{1}}}),
	}
	for name, authorization := range tests {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			header := http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"k1"}}
			code := "token_invalid"
			if authorization == "" {
				code = "token_missing"
			} else {
				header.Set("Authorization", authorization)
			}
			s.Untouched(func() {
				a := s.Send(system.Request{Method: http.MethodPost, Path: system.GrantsPath, Header: header, Body: system.ChangeBody("u_1", "item1", "x", "y")})
				system.WantProblem(t, a, http.StatusUnauthorized, code)
				if scheme := a.Header.Get("WWW-Authenticate"); !strings.HasPrefix(scheme, "Bearer") {
					t.Errorf("WWW-Authenticate %q, want Bearer", scheme)
				}
			})
		})
	}
	t.Run("two headers", func(t *testing.T) {
		header := http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"k1"}, "Authorization": {"Bearer " + good, "Bearer " + good}}
		a := s.In(t).Send(system.Request{Method: http.MethodPost, Path: system.GrantsPath, Header: header, Body: system.ChangeBody("u_1", "item1", "x", "y")})
		system.WantProblem(t, a, http.StatusUnauthorized, "token_invalid")
	})
	t.Run("in the query", func(t *testing.T) {
		a := s.In(t).Call(http.MethodGet, "/v1/users/u_1/entitlements?access_token="+good, "", "")
		system.WantProblem(t, a, http.StatusUnauthorized, "token_missing")
	})
	// Each was refused for its own fault: without it, the token is accepted.
	for name, token := range map[string]string{
		"good": good, "audience as text": issuer.Token(t, map[string]any{"aud": "miniserver"}),
		"several audiences": issuer.Token(t, map[string]any{"aud": []string{"account", "miniserver"}}),
		"PS256":             system.Sign(t, jose.PS256, jose.JSONWebKey{Key: issuer.Key, KeyID: "k1"}, issuer.Claims(nil), nil),
	} {
		if a := s.Call(http.MethodGet, "/v1/users/u_1/entitlements", token, ""); a.Status != http.StatusOK {
			t.Errorf("%s: answered %d %s, want 200", name, a.Status, a.Body)
		}
	}
	lower := s.Send(system.Request{Method: http.MethodGet, Path: "/v1/users/u_1/entitlements", Header: http.Header{"Authorization": {"bearer " + good}}})
	system.WantStatus(t, lower, http.StatusOK) // the scheme is case-insensitive (RFC 9110, 11.1)
}

// A token that was accepted once is refused after it expires.
func TestTokenExpiresWhileKnown(t *testing.T) {
	t.Parallel()
	issuer := system.NewPeople(t)
	s := system.Start(t, "WAKES=false", "OIDC_ISSUER="+issuer.URL)
	token := issuer.Token(t, map[string]any{"exp": time.Now().Add(2 * time.Second).Unix()})
	system.WantStatus(t, s.Call(http.MethodGet, "/v1/users/u_1/entitlements", token, ""), http.StatusOK)
	kit.Eventually(t, "the token has expired", func() bool {
		a := s.Call(http.MethodGet, "/v1/users/u_1/entitlements", token, "")
		return a.Status == http.StatusUnauthorized
	})
}

// A token without the needed role is answered 403 on every route that needs one.
func TestRoles(t *testing.T) {
	t.Parallel()
	issuer := system.NewPeople(t)
	s := system.Start(t, "WAKES=false", "OIDC_ISSUER="+issuer.URL)
	with := func(roles ...string) string {
		return issuer.Token(t, map[string]any{"sub": "somebody", "realm_access": map[string]any{"roles": roles}})
	}
	for _, test := range []struct {
		method, path string
		allowed      string
	}{
		{"POST", system.GrantsPath, "entitlement-writer"},
		{"POST", system.RevokesPath, "entitlement-writer"},
		{"POST", system.EventsPath, "entitlement-writer"},
		{"GET", "/v1/users/u_1/entitlements/item1/history", "operator"},
		{"GET", "/debug/notification/inbox/u_1", "operator"},
	} {
		for _, role := range []string{"player", "operator", "entitlement-writer", "Operator", "operator ", "admin"} {
			a := s.Call(test.method, test.path, with(role), "")
			if role == test.allowed {
				if a.Status == http.StatusForbidden || a.Status == http.StatusUnauthorized {
					t.Errorf("%s %s as %s: answered %d", test.method, test.path, role, a.Status)
				}
				continue
			}
			system.WantProblem(t, a, http.StatusForbidden, "role_missing")
		}
		system.WantProblem(t, s.Call(test.method, test.path, with(), ""), http.StatusForbidden, "role_missing")
		without := issuer.Token(t, map[string]any{"realm_access": nil, "roles": []string{test.allowed}})
		system.WantProblem(t, s.Call(test.method, test.path, without, ""), http.StatusForbidden, "role_missing")
	}
}

// Players read what is theirs. What is another player's is answered like what does not
// exist.
func TestWhoReadsWhat(t *testing.T) {
	t.Parallel()
	issuer := system.NewPeople(t)
	s := system.Start(t, "WAKES=false", "OIDC_ISSUER="+issuer.URL)
	s.Writer, s.Operator = issuer.Token(t, nil), issuer.Token(t, map[string]any{"realm_access": map[string]any{"roles": []string{"operator"}}})
	owner, other := issuer.Player(t, "s_1"), issuer.Player(t, "s_2")
	user := s.UserID(owner)
	system.WantStatus(t, s.Grant("k1", user, "item1"), http.StatusOK)
	list := "/v1/users/" + user + "/entitlements"
	one, missing := list+"/item1", list+"/none"
	expired := issuer.Token(t, map[string]any{"sub": "s_1", "exp": time.Now().Add(-time.Minute).Unix()})
	writer := issuer.Token(t, map[string]any{"realm_access": map[string]any{"roles": []string{"entitlement-writer"}}})
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
			{"owner", owner, test.owner},
			{"other", other, test.other},
			{"anonymous", "", test.anonymous},
			{"operator", s.Operator, test.operator},
			{"writer", writer, test.writer},
			{"expired", expired, test.late},
		} {
			if a := s.Call(http.MethodGet, test.path, caller.token, ""); a.Status != caller.status {
				t.Errorf("%s as %s: answered %d, want %d", test.path, caller.name, a.Status, caller.status)
			}
		}
	}
	there, not := s.Call(http.MethodGet, one, other, ""), s.Call(http.MethodGet, missing, other, "")
	if string(there.Body) != string(not.Body) {
		t.Errorf("the answers for another's item and for none differ: %s, %s", there.Body, not.Body)
	}
	// Ids have one spelling: nothing similar is the caller's own.
	for _, near := range []string{strings.ToUpper(user), user + "%20", user + "%2F", "s_1", user[:len(user)-1]} {
		if a := s.Call(http.MethodGet, "/v1/users/"+near+"/entitlements", owner, ""); a.Status == http.StatusOK {
			t.Errorf("the entitlements of %s were read", near)
		}
	}
}

// Tokens with unknown key ids do not each cause a request to the issuer.
func TestUnknownKeysAreAskedForOnce(t *testing.T) {
	t.Parallel()
	issuer := system.NewPeople(t)
	s := system.Start(t, "WAKES=false", "OIDC_ISSUER="+issuer.URL)
	system.WantStatus(t, s.Call(http.MethodGet, "/v1/users/u_1/entitlements", issuer.Token(t, nil), ""), http.StatusOK)
	before := issuer.Fetched.Load()
	for i := range 20 {
		token := system.Sign(t, jose.RS256, jose.JSONWebKey{Key: issuer.Key, KeyID: fmt.Sprint("unknown", i)}, issuer.Claims(nil), nil)
		system.WantProblem(t, s.Call(http.MethodGet, "/v1/users/u_1/entitlements", token, ""), http.StatusUnauthorized, "token_invalid")
	}
	if n := issuer.Fetched.Load() - before; n > 1 {
		t.Errorf("20 tokens with unknown keys made %d fetches; one in 30 s is allowed", n)
	}
}
