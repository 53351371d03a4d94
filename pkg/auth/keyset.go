package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

const (
	// keysRefetch is how often an unknown key id may make us ask the issuer: anybody
	// can make up key ids.
	keysRefetch = 30 * time.Second
	// keysMaxAge is how long a key is believed that the issuer may have withdrawn.
	keysMaxAge  = 15 * time.Minute
	maxKeyBytes = 1 << 20
)

// errKeysAway means that a token cannot be judged now: the issuer's keys cannot be
// had.
var errKeysAway = errors.New("the issuer's keys cannot be fetched")

// keySet holds the public keys of an issuer. It is an oidc.KeySet that asks for
// keys a bounded number of times, and that tells a bad signature from an issuer
// that is away.
type keySet struct {
	url    string
	client *http.Client

	mutex   sync.Mutex
	keys    jose.JSONWebKeySet
	fetched time.Time // when keys were last had
	asked   time.Time // when they were last asked for
	failure error     // of that time
}

var _ oidc.KeySet = (*keySet)(nil)

// VerifySignature returns the payload of a token that one of the keys signed.
func (s *keySet) VerifySignature(ctx context.Context, raw string) ([]byte, error) {
	allowed := make([]jose.SignatureAlgorithm, len(algorithms))
	for i, algorithm := range algorithms {
		allowed[i] = jose.SignatureAlgorithm(algorithm)
	}
	token, err := jose.ParseSignedCompact(raw, allowed)
	if err != nil || len(token.Signatures) != 1 {
		return nil, errors.New("malformed token")
	}
	keys, err := s.find(ctx, token.Signatures[0].Header.KeyID)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if payload, err := token.Verify(key.Key); err == nil {
			return payload, nil
		}
	}
	return nil, errors.New("no key of the issuer made this signature")
}

// find returns the keys with an id, asking the issuer for them when it is unknown
// or they are old, and it was not asked just now.
func (s *keySet) find(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found := s.keys.Key(id)
	if len(found) > 0 && time.Since(s.fetched) < keysMaxAge {
		return found, nil
	}
	if time.Since(s.asked) >= keysRefetch {
		s.asked = time.Now()
		// One caller's patience must not decide for all that wait for the same keys.
		if s.failure = s.fetch(context.WithoutCancel(ctx)); s.failure != nil {
			// Try again soon: nobody can be let in meanwhile.
			s.asked = time.Now().Add(issuerRetry - keysRefetch)
		}
		found = s.keys.Key(id)
	}
	if len(found) == 0 && s.failure != nil {
		return nil, fmt.Errorf("%w: %v", errKeysAway, s.failure)
	}
	return found, nil
}

func (s *keySet) fetch(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxKeyBytes))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %d", response.StatusCode)
	}
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal(body, &keys); err != nil {
		return err
	}
	s.keys, s.fetched = keys, time.Now()
	return nil
}
