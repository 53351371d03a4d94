package system

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/miniserversystem/miniserver/test/kit"
)

// LogoutClaims are those of a logout token for the session sid, with some changed; nil
// omits one.
func (i *CodeIssuer) LogoutClaims(sid string, change map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{
		"sub": nil, "sid": sid, "aud": "miniserver-web", "azp": nil, "typ": "Logout", "realm_access": nil, "jti": rand.Text(),
		"iat": now.Unix(), "exp": now.Add(2 * time.Minute).Unix(), "events": map[string]any{LogoutEvent: map[string]any{}},
	}
	for name, value := range change {
		claims[name] = value
	}
	return i.Claims(claims)
}

// LogoutToken is a logout token for the session sid, with some claims changed.
func (i *CodeIssuer) LogoutToken(t testing.TB, sid string, change map[string]any) string {
	t.Helper()
	return Sign(t, jose.RS256, jose.JSONWebKey{Key: i.Key, KeyID: "k1"}, i.LogoutClaims(sid, change), nil)
}

// CodeIssuer is an issuer where browsers sign in and whose every answer a test writes. It
// names itself in its answers (RFC 9207).
type CodeIssuer struct {
	*People

	Mutex  sync.Mutex
	grants map[string]codeGrant // by code
	Made   []string             // every token that it issued
}

// codeGrant is what a code is exchanged for, once.
type codeGrant struct {
	challenge string // of PKCE; "" is not checked
	answer    map[string]any
}

// SigningIn is who signs in at a CodeIssuer, and what the issuer answers then.
type SigningIn struct {
	Subject, Sid string
	Roles        []string       // none: a player
	ID, Access   map[string]any // claims to change; nil omits one
	IDToken      func(claims map[string]any) string
	Answer       map[string]any // fields of the token endpoint's answer to change
	LaxPKCE      bool           // the issuer does not check the verifier
}

// issuerKey is the key that all issuers of tests sign with: generating one is slow under
// the race detector.
var issuerKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// NewCodeIssuer starts a CodeIssuer, which ends with the test.
func NewCodeIssuer(t testing.TB) *CodeIssuer {
	t.Helper()
	key, err := issuerKey()
	kit.Must(t, err)
	i := &CodeIssuer{People: &People{Key: key}, grants: map[string]codeGrant{}}
	listener := kit.Listen(t)
	i.URL = "http://" + listener.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "token_endpoint": i.URL + "/token", "authorization_endpoint": i.URL + "/authorize",
			"id_token_signing_alg_values_supported":          []string{"RS256", "HS256", "none"},
			"authorization_response_iss_parameter_supported": true,
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k1", Algorithm: "RS256", Use: "sig"}}})
	})
	mux.HandleFunc("POST /token", i.exchange)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	server.Start()
	t.Cleanup(server.Close)
	return i
}

func (i *CodeIssuer) exchange(w http.ResponseWriter, r *http.Request) {
	i.Mutex.Lock()
	defer i.Mutex.Unlock()
	code := r.FormValue("code")
	grant, known := i.grants[code]
	delete(i.grants, code)
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	w.Header().Set("Content-Type", "application/json")
	if !known || grant.challenge != "" && grant.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant"})
		return
	}
	_ = json.NewEncoder(w).Encode(grant.answer)
}

// Signs signs who in and returns the parameters of the redirect to the gateway; asked are
// those of the redirect to the issuer.
func (i *CodeIssuer) Signs(t testing.TB, asked url.Values, who SigningIn) url.Values {
	t.Helper()
	now := time.Now()
	roles := who.Roles
	if roles == nil {
		roles = []string{"player"}
	}
	both := map[string]any{
		"sub": who.Subject, "azp": "miniserver-web", "exp": now.Add(10 * time.Minute).Unix(), "auth_time": now.Unix(),
		"sid": who.Sid, "realm_access": map[string]any{"roles": roles},
	}
	change := func(own, by map[string]any) map[string]any {
		c := maps.Clone(both)
		maps.Copy(c, own)
		maps.Copy(c, by)
		return c
	}
	access := i.Token(t, change(nil, who.Access))
	idClaims := i.Claims(change(map[string]any{"aud": "miniserver-web", "typ": "ID", "nonce": asked.Get("nonce"), "realm_access": nil}, who.ID))
	id := Sign(t, jose.RS256, jose.JSONWebKey{Key: i.Key, KeyID: "k1"}, idClaims, nil)
	if who.IDToken != nil {
		id = who.IDToken(idClaims)
	}
	refresh := "refresh-" + strings.ToLower(rand.Text())
	grant := codeGrant{challenge: asked.Get("code_challenge"), answer: map[string]any{
		"access_token": access, "id_token": id, "refresh_token": refresh, "token_type": "Bearer", "expires_in": 600,
	}}
	if who.LaxPKCE {
		grant.challenge = ""
	}
	maps.Copy(grant.answer, who.Answer)
	code := rand.Text()
	i.Mutex.Lock()
	defer i.Mutex.Unlock()
	i.grants[code] = grant
	i.Made = append(i.Made, access, id, refresh)
	return url.Values{"code": {code}, "state": {asked.Get("state")}, "iss": {i.URL}}
}

// Fresh returns the access token of a player who signed in just now.
func (i *CodeIssuer) Fresh(t testing.TB, subject string, change map[string]any) string {
	t.Helper()
	claims := map[string]any{
		"sub": subject, "azp": "miniserver-web", "auth_time": time.Now().Unix(), "realm_access": map[string]any{"roles": []string{"player"}},
	}
	maps.Copy(claims, change)
	return i.Token(t, claims)
}

// Quiet keeps the anonymous limit out of tests that are about something else.
var Quiet = []string{"WAKES=false", "LIMIT_PATIENCE=1s", "LIMIT_ANONYMOUS_BURST=100000", "LIMIT_ANONYMOUS_RATE=100000"}

// StartAt starts a system whose users sign in at i.
func StartAt(t testing.TB, i *CodeIssuer, environment ...string) *System {
	t.Helper()
	return StartOn(t, kit.Listen(t), append(append([]string{"OIDC_ISSUER=" + i.URL}, Quiet...), environment...)...)
}
