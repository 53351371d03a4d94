package issuer

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	rsaKeyBits = 2048
	// maxRetiredKeys is how many old public keys stay in the JWKS. Tokens live
	// for minutes, so this is plenty unless keys are rotated in a loop.
	maxRetiredKeys = 8

	keyFileName             = "signing-keys.json"
	keyFileMode fs.FileMode = 0o600
	keyDirMode  fs.FileMode = 0o700
)

// keyRing holds the signing key and the public keys of those before it.
type keyRing struct {
	path string // of the key file; empty: memory only

	mu      sync.RWMutex
	current jose.JSONWebKey   // private
	retired []jose.JSONWebKey // public, newest first
}

// newKeyRing reads the keys from a directory, or makes a first one.
func newKeyRing(dir string) (*keyRing, error) {
	ring := &keyRing{}
	if dir == "" {
		return ring, ring.rotate()
	}
	if err := os.MkdirAll(dir, keyDirMode); err != nil {
		return nil, err
	}
	ring.path = filepath.Join(dir, keyFileName)
	switch err := ring.read(); {
	case errors.Is(err, fs.ErrNotExist):
		return ring, ring.rotate()
	case err != nil:
		return nil, fmt.Errorf("%s: %w", ring.path, err)
	}
	return ring, nil
}

// rotate makes a new signing key, which takes effect only once it is written.
func (r *keyRing) rotate() error {
	fresh, err := newSigningKey()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	retired := r.retired
	if r.current.Key != nil {
		retired = append([]jose.JSONWebKey{r.current.Public()}, retired...)
	}
	retired = retired[:min(len(retired), maxRetiredKeys)]
	if r.path != "" {
		if err := writeKeys(r.path, fresh, retired); err != nil {
			return err
		}
	}
	r.current, r.retired = fresh, retired
	return nil
}

func newSigningKey() (jose.JSONWebKey, error) {
	private, err := rsa.GenerateKey(rand.Reader, rsaKeyBits)
	if err != nil {
		return jose.JSONWebKey{}, err
	}
	key := jose.JSONWebKey{Key: private, Algorithm: string(jose.RS256), Use: oidc.KeyUseSignature}
	thumbprint, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		return jose.JSONWebKey{}, err
	}
	key.KeyID = base64.RawURLEncoding.EncodeToString(thumbprint)
	return key, nil
}

// read takes the keys from the file: the signing key first, then the public
// keys of those before it.
func (r *keyRing) read() error {
	content, err := os.ReadFile(r.path)
	if err != nil {
		return err
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(content, &set); err != nil {
		// The cause could quote the file, which holds a private key.
		return errors.New("not a JSON Web Key Set")
	}
	if len(set.Keys) == 0 {
		return errors.New("no key")
	}
	if _, ok := set.Keys[0].Key.(*rsa.PrivateKey); !ok || !set.Keys[0].Valid() {
		return errors.New("the first key is not a valid RSA private key")
	}
	r.current, r.retired = set.Keys[0], set.Keys[1:]
	return nil
}

// writeKeys replaces the file in one step, so that a crash leaves a whole one.
func writeKeys(path string, current jose.JSONWebKey, retired []jose.JSONWebKey) error {
	content, err := json.Marshal(jose.JSONWebKeySet{Keys: append([]jose.JSONWebKey{current}, retired...)})
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), keyFileName+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // no effect once it was renamed
	if err := errors.Join(temporary.Chmod(keyFileMode), writeAndClose(temporary, content)); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

func writeAndClose(f *os.File, content []byte) error {
	_, err := f.Write(content)
	return errors.Join(err, f.Close())
}

// signing returns the key to sign with.
func (r *keyRing) signing() jose.JSONWebKey {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.current
}

// public returns all keys to verify with, newest first.
func (r *keyRing) public() []op.Key {
	r.mu.RLock()
	defer r.mu.RUnlock()
	keys := []op.Key{publicKey{r.current.Public()}}
	for _, key := range r.retired {
		keys = append(keys, publicKey{key.Public()}) // even if the file holds private ones
	}
	return keys
}

// signingKey and publicKey adapt a key to the library.
type (
	signingKey struct{ key jose.JSONWebKey }
	publicKey  struct{ key jose.JSONWebKey }
)

func (k signingKey) ID() string                                  { return k.key.KeyID }
func (k signingKey) Key() any                                    { return k.key.Key }
func (k signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }

func (k publicKey) ID() string                         { return k.key.KeyID }
func (k publicKey) Key() any                           { return k.key.Key }
func (k publicKey) Use() string                        { return k.key.Use }
func (k publicKey) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
