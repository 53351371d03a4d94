package session

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

const (
	secretBytes = 32 // length of every secret in a cookie
	nonceBytes  = 12 // at the beginning of a sealed value
)

// newSecret returns random bytes, and their text for the browser.
func newSecret() ([]byte, string) {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // it never fails
	return secret, base64.RawURLEncoding.EncodeToString(secret)
}

// parseSecret parses the text of newSecret, and accepts no other spelling of it.
func parseSecret(text string) ([]byte, bool) {
	if len(text) != base64.RawURLEncoding.EncodedLen(secretBytes) {
		return nil, false
	}
	secret, err := base64.RawURLEncoding.Strict().DecodeString(text)
	// The decoder skips line breaks, so the length is checked again.
	return secret, err == nil && len(secret) == secretBytes
}

// derive returns 32 bytes that reveal nothing about the secret or other purposes.
func derive(secret []byte, purpose string) []byte {
	derived, err := hkdf.Key(sha256.New, secret, nil, "miniserver "+purpose, sha256.Size)
	if err != nil {
		panic(err) // the length is a constant
	}
	return derived
}

// box seals and opens the value of one Redis key.
type box struct {
	key  string // also the additional data: a value moved to another key does not open
	aead cipher.AEAD
}

func newBox(key string, secret []byte, purpose string) box {
	block, err := aes.NewCipher(derive(secret, purpose))
	if err == nil {
		var aead cipher.AEAD
		if aead, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return box{key, aead}
		}
	}
	panic(err) // the key's length is a constant
}

// seal encrypts v with a new nonce, with which the result begins.
func (b box) seal(v any) ([]byte, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return b.aead.Seal(nil, nil, plain, []byte(b.key)), nil
}

// open decodes sealed into v, and reports whether the same box sealed it.
func (b box) open(sealed []byte, v any) bool {
	plain, err := b.aead.Open(nil, nil, sealed, []byte(b.key))
	return err == nil && json.Unmarshal(plain, v) == nil
}

// place is the storage of one session.
type place struct {
	box
	id string
}

func placeOf(secret []byte) place {
	id := base64.RawURLEncoding.EncodeToString(derive(secret, "session id"))
	return place{newBox(sessionKey(id), secret, "session encryption"), id}
}

// find is placeOf of a cookie's value; ok is false when it was not made here.
func find(cookie string) (p place, ok bool) {
	secret, ok := parseSecret(cookie)
	if !ok {
		return place{}, false
	}
	return placeOf(secret), true
}

func sessionKey(id string) string { return keyPrefix + "{" + id + "}" }
