package system

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/miniserversystem/miniserver/test/kit"
)

// LinkToken links the identity of second to the account of first.
func (s *System) LinkToken(first, second string) Answer {
	s.T.Helper()
	return s.Call(http.MethodPost, "/v1/me/identities", first, `{"access_token":"`+second+`"}`)
}

// People is an issuer whose tokens a test writes itself.
type People struct {
	URL     string
	Key     *rsa.PrivateKey
	Fetched atomic.Int64 // how often its keys were fetched
}

// NewPeople starts an issuer, which ends with the test. All issuers of a process share a
// key.
func NewPeople(t testing.TB) *People {
	t.Helper()
	key, err := issuerKey()
	kit.Must(t, err)
	i := &People{Key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "token_endpoint": i.URL + "/token", "authorization_endpoint": i.URL + "/authorize",
			"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		i.Fetched.Add(1)
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k1", Algorithm: "RS256", Use: "sig"}}})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	i.URL = server.URL
	return i
}

// Claims are those of an access token that may do anything, with some changed; nil omits
// one.
func (i *People) Claims(change map[string]any) map[string]any {
	now := time.Now()
	c := map[string]any{
		"iss": i.URL, "sub": "svc", "aud": []string{"miniserver"}, "azp": "purchase-service", "typ": "Bearer",
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "jti": fmt.Sprint(now.UnixNano()),
		"realm_access": map[string]any{"roles": []string{"entitlement-writer", "operator"}},
	}
	maps.Copy(c, change)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// Sign makes a JSON Web Token.
func Sign(t testing.TB, algorithm jose.SignatureAlgorithm, key any, claims map[string]any, header map[jose.HeaderKey]any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	for name, value := range header {
		options.WithHeader(name, value)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		t.Error(err)
		return ""
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Error(err)
	}
	return token
}

// Token returns an access token with these Claims.
func (i *People) Token(t testing.TB, change map[string]any) string {
	t.Helper()
	return Sign(t, jose.RS256, jose.JSONWebKey{Key: i.Key, KeyID: "k1"}, i.Claims(change), nil)
}

// UserID registers the owner of a token and returns their user id.
func (s *System) UserID(token string) string {
	s.T.Helper()
	a := s.Call(http.MethodPost, "/v1/me", token, "")
	if a.Status != http.StatusOK {
		s.T.Errorf("registering is answered %d %s, want 200", a.Status, a.Body)
	}
	return a.Text("user_id")
}

// Player returns an access token of a player.
func (i *People) Player(t testing.TB, user string) string {
	t.Helper()
	return i.Token(t, map[string]any{"sub": user, "realm_access": map[string]any{"roles": []string{"player"}}})
}

// Part encodes a part of a token that a test assembles itself.
func Part(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// StartWithPeople starts a system whose issuer's tokens the test writes.
func StartWithPeople(t testing.TB, environment ...string) (*System, *People) {
	t.Helper()
	people := NewPeople(t)
	s := StartOn(t, kit.Listen(t), append([]string{"OIDC_ISSUER=" + people.URL}, environment...)...)
	s.Writer = people.Token(t, nil)
	return s, people
}
