package main

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/pkg/auth"
)

const (
	keyID         = "bench"
	rsaKeyBits    = 2048
	tokenLifetime = time.Hour // longer than any run
)

// tokenIssuer signs access tokens for anybody, of the form and size of Keycloak's: the
// development issuer has only four users, each with a limit.
type tokenIssuer struct {
	url    string
	signer jose.Signer
}

// tokenIssuer starts an issuer that serves its description and its keys. It is stopped
// when the experiment ends.
func (b *bench) tokenIssuer() (*tokenIssuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, rsaKeyBits)
	if err != nil {
		return nil, err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: keyID}},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, err
	}
	listener, err := proc.Listen(0)
	if err != nil {
		return nil, err
	}
	i := &tokenIssuer{url: "http://" + listener.Addr().String(), signer: signer}
	answer := func(value any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(value) // the reader may be gone
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", answer(map[string]any{
		"issuer": i.url, "jwks_uri": i.url + "/keys", "authorization_endpoint": i.url + "/authorize", "token_endpoint": i.url + "/token",
		"id_token_signing_alg_values_supported": []string{string(jose.RS256)},
	}))
	mux.HandleFunc("GET /keys", answer(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: key.Public(), KeyID: keyID, Algorithm: string(jose.RS256), Use: "sig"},
	}}))
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }() // until Close
	b.onTidy(server.Close)
	return i, nil
}

// token returns an access token of subject, issued to client.
func (i *tokenIssuer) token(subject, client string, roles ...string) (string, error) {
	now := time.Now()
	return jwt.Signed(i.signer).Claims(jwt.Claims{
		Issuer: i.url, Subject: subject, Audience: jwt.Audience{"miniserver"}, ID: uuid.NewString(),
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(tokenLifetime)),
	}).Claims(map[string]any{
		"typ": "Bearer", "azp": client, "auth_time": now.Unix(), "sid": uuid.NewString(), "scope": "openid profile",
		"preferred_username": subject, "realm_access": map[string]any{"roles": roles},
	}).Serialize()
}

// shop returns the token of a purchase service.
func (i *tokenIssuer) shop() (string, error) {
	return i.token("bench-shop", "purchase-service", auth.RoleEntitlementWriter)
}
