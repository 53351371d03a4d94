package functions_test

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

// codeIssuer is an issuer at which browsers sign in and whose every answer a test
// writes itself. It names itself in its answers (RFC 9207).
type codeIssuer struct {
	*signedIssuer

	mutex  sync.Mutex
	grants map[string]codeGrant // by code
	made   []string             // every token that it gave out
}

// codeGrant is what a code is good for, once.
type codeGrant struct {
	challenge string // of PKCE; "" is not checked
	answer    map[string]any
}

// signingIn is who signs in at a codeIssuer, and what the issuer makes of it.
type signingIn struct {
	subject, sid string
	roles        []string       // none: a player
	id, access   map[string]any // claims to change; nil leaves one out
	idToken      func(claims map[string]any) string
	answer       map[string]any // fields of the token endpoint's answer to change
	laxPKCE      bool           // the issuer does not look at the verifier
}

// attackKey is shared, because making one takes long under the race detector.
var attackKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func newCodeIssuer(t testing.TB) *codeIssuer {
	t.Helper()
	key, err := attackKey()
	must(t, err)
	i := &codeIssuer{signedIssuer: &signedIssuer{key: key}, grants: map[string]codeGrant{}}
	listener := kit.Listen(t)
	i.url = "http://" + listener.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": i.url, "jwks_uri": i.url + "/keys", "token_endpoint": i.url + "/token", "authorization_endpoint": i.url + "/authorize",
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

func (i *codeIssuer) exchange(w http.ResponseWriter, r *http.Request) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
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

// signs lets who sign in for asked, which is what the gateway sent the browser
// with, and returns what the browser comes back with.
func (i *codeIssuer) signs(t testing.TB, asked url.Values, who signingIn) url.Values {
	t.Helper()
	now := time.Now()
	roles := who.roles
	if roles == nil {
		roles = []string{"player"}
	}
	both := map[string]any{
		"sub": who.subject, "azp": "miniserver-web", "exp": now.Add(10 * time.Minute).Unix(), "auth_time": now.Unix(),
		"sid": who.sid, "realm_access": map[string]any{"roles": roles},
	}
	change := func(own, by map[string]any) map[string]any {
		c := maps.Clone(both)
		maps.Copy(c, own)
		maps.Copy(c, by)
		return c
	}
	access := i.token(t, change(nil, who.access))
	idClaims := i.claims(change(map[string]any{"aud": "miniserver-web", "typ": "ID", "nonce": asked.Get("nonce"), "realm_access": nil}, who.id))
	id := sign(t, jose.RS256, jose.JSONWebKey{Key: i.key, KeyID: "k1"}, idClaims, nil)
	if who.idToken != nil {
		id = who.idToken(idClaims)
	}
	refresh := "refresh-" + strings.ToLower(rand.Text())
	grant := codeGrant{challenge: asked.Get("code_challenge"), answer: map[string]any{
		"access_token": access, "id_token": id, "refresh_token": refresh, "token_type": "Bearer", "expires_in": 600,
	}}
	if who.laxPKCE {
		grant.challenge = ""
	}
	maps.Copy(grant.answer, who.answer)
	code := rand.Text()
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.grants[code] = grant
	i.made = append(i.made, access, id, refresh)
	return url.Values{"code": {code}, "state": {asked.Get("state")}, "iss": {i.url}}
}

// fresh returns the access token of a player who signed in just now.
func (i *codeIssuer) fresh(t testing.TB, subject string, change map[string]any) string {
	t.Helper()
	claims := map[string]any{
		"sub": subject, "azp": "miniserver-web", "auth_time": time.Now().Unix(), "realm_access": map[string]any{"roles": []string{"player"}},
	}
	maps.Copy(claims, change)
	return i.token(t, claims)
}
