package auth

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
)

// NewKeyPair returns a new key pair for statements: the private JWK for the gateway
// (IDENTITY_SIGNING_KEY), and a JWK Set for the functions (IDENTITY_VERIFY_KEYS).
func NewKeyPair() (privateJWK, publicJWKS string, err error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", "", err
	}
	kid := uuid.NewString()
	key, err := json.Marshal(jose.JSONWebKey{Key: private, KeyID: kid, Algorithm: string(jose.EdDSA), Use: "sig"})
	if err != nil {
		return "", "", err
	}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: public, KeyID: kid, Algorithm: string(jose.EdDSA), Use: "sig"},
	}})
	return string(key), string(keys), err
}
