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
	// keysRefetch is how often an unknown key id may cause a request to the issuer:
	// anybody can invent key ids.
	keysRefetch = 30 * time.Second
	// keysMaxAge is how long a key is trusted after the issuer may have withdrawn it.
	keysMaxAge  = 15 * time.Minute
	maxKeyBytes = 1 << 20
)

// errKeysAway means that a token cannot be verified now, for lack of the issuer's keys.
var errKeysAway = errors.New("the issuer's keys cannot be fetched")

// keySet holds the public keys of an issuer. It is an oidc.KeySet that bounds its
// requests to the issuer, and distinguishes a bad signature from an absent issuer.
type keySet struct {
	url    string
	client *http.Client

	mutex   sync.Mutex
	keys    jose.JSONWebKeySet
	fetched time.Time // when keys were last fetched
	asked   time.Time // when an unknown key id last caused a request
	failure error     // of that time
	// fetching is closed when the fetch under way ends; nil when there is none.
	fetching chan struct{}
}

var _ oidc.KeySet = (*keySet)(nil)

// VerifySignature returns the payload of a token that one of the keys signed.
func (s *keySet) VerifySignature(ctx context.Context, raw string) ([]byte, error) {
	token, err := jose.ParseSignedCompact(raw, joseAlgorithms)
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

type sentByIssuer struct{}

// fromIssuer returns a context to verify what the issuer itself has just sent: nobody
// invented its key id.
func fromIssuer(ctx context.Context) context.Context {
	return context.WithValue(ctx, sentByIssuer{}, true)
}

// find returns the keys with an id. For an unknown id it asks the issuer, unless it asked
// recently because of a caller's token; old keys are renewed in the background.
func (s *keySet) find(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	found, err := s.look(ctx, id)
	if len(found) == 0 && err == nil && ctx.Value(sentByIssuer{}) != nil {
		s.mutex.Lock()
		s.asked = time.Time{}
		s.mutex.Unlock()
		return s.look(ctx, id)
	}
	return found, err
}

func (s *keySet) look(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	s.mutex.Lock()
	found := s.keys.Key(id)
	var asked <-chan struct{}
	if len(found) == 0 || time.Since(s.fetched) >= keysMaxAge {
		asked = s.ask()
	}
	s.mutex.Unlock()
	if len(found) > 0 {
		return found, nil
	}
	if asked != nil {
		select {
		case <-asked:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errKeysAway, ctx.Err())
		}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if found = s.keys.Key(id); len(found) == 0 && s.failure != nil {
		return nil, fmt.Errorf("%w: %w", errKeysAway, s.failure)
	}
	return found, nil
}

// ask begins to fetch the keys, or joins a fetch in progress, and returns a channel that
// is closed at its end; nil if one ended recently. The mutex is held.
func (s *keySet) ask() <-chan struct{} {
	if s.fetching != nil || time.Since(s.asked) < keysRefetch {
		return s.fetching
	}
	done := make(chan struct{})
	s.fetching = done
	if !s.fetched.IsZero() {
		// The first fetch does not count, so keys that are rotated just after it are
		// fetched at once.
		s.asked = time.Now()
	}
	go func() {
		// Not a caller's ctx: others wait for the same keys, and the client has a
		// timeout.
		keys, err := s.fetch(context.Background())
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if s.failure = err; err == nil {
			s.keys, s.fetched = keys, time.Now()
		} else {
			// Retry soon: without keys no caller can be authenticated.
			s.asked = time.Now().Add(issuerRetry - keysRefetch)
		}
		s.fetching = nil
		close(done)
	}()
	return done
}

func (s *keySet) fetch(ctx context.Context) (keys jose.JSONWebKeySet, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return keys, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return keys, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return keys, fmt.Errorf("answered %d", response.StatusCode)
	}
	err = json.NewDecoder(io.LimitReader(response.Body, maxKeyBytes)).Decode(&keys)
	return keys, err
}
