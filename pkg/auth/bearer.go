package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

const (
	issuerTimeout = 5 * time.Second
	// issuerRetry is how soon an issuer that failed is asked again; callers get a 503
	// meanwhile, and do not queue for it.
	issuerRetry = time.Second
	// maxTokenBytes bounds what is parsed before anything is known of the caller.
	maxTokenBytes = 8 << 10
	// tokenRecheck bounds how long a checked token is believed without looking at
	// the issuer's keys again.
	tokenRecheck = 30 * time.Second
)

// algorithms that access tokens may be signed with; none and the symmetric ones
// are not among them.
var algorithms = []string{oidc.RS256, oidc.ES256, oidc.PS256, oidc.EdDSA}

// joseAlgorithms are the same, as jose names their type.
var joseAlgorithms = func() (same []jose.SignatureAlgorithm) {
	for _, algorithm := range algorithms {
		same = append(same, jose.SignatureAlgorithm(algorithm))
	}
	return same
}()

// Bearer checks access tokens of one OpenID Connect issuer.
type Bearer struct {
	issuer, audience string
	client           *http.Client
	known            *memory[Identity]

	mutex   sync.Mutex
	keys    *keySet
	asked   time.Time // when the issuer last failed to answer
	failure error     // and how
}

// NewBearer returns a checker. It asks the issuer for its keys when the first
// token arrives, so the issuer may start later.
func NewBearer(issuer, audience string) *Bearer {
	return &Bearer{
		issuer: issuer, audience: audience,
		client: &http.Client{Timeout: issuerTimeout},
		known:  newMemory[Identity](maxRemembered),
	}
}

// Identify returns who sent the request. Without a token that is ErrNoToken,
// with one that is not good here ErrBadToken; an issuer that cannot be reached is
// fault.Unavailable.
func (b *Bearer) Identify(r *http.Request) (Identity, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return Identity{}, ErrNoToken
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxTokenBytes {
		return Identity{}, ErrBadToken
	}
	now := time.Now()
	sum := sha256.Sum256([]byte(token))
	if identity, ok := b.known.get(string(sum[:]), now); ok {
		return identity, nil
	}
	identity, expiry, err := b.verify(r.Context(), token)
	if err != nil {
		return Identity{}, err
	}
	b.known.put(string(sum[:]), identity, earlier(expiry, now.Add(tokenRecheck)))
	return identity, nil
}

func (b *Bearer) verify(ctx context.Context, raw string) (Identity, time.Time, error) {
	keys, err := b.discover()
	if err != nil {
		return Identity{}, time.Time{}, fault.Unreachable("The sign-in issuer", err)
	}
	// The verifier hides why its keys could not be had.
	noted := &notedKeys{KeySet: keys}
	token, err := oidc.NewVerifier(b.issuer, noted, &oidc.Config{ClientID: b.audience, SupportedSigningAlgs: algorithms}).Verify(ctx, raw)
	if errors.Is(noted.err, errKeysAway) {
		return Identity{}, time.Time{}, fault.Unreachable("The sign-in issuer", noted.err)
	}
	if err != nil {
		return Identity{}, time.Time{}, &fault.Error{Kind: ErrBadToken.Kind, Code: ErrBadToken.Code, Detail: ErrBadToken.Detail, Cause: err}
	}
	var claims struct {
		Type        string `json:"typ"`
		Client      string `json:"azp"`
		RealmAccess struct {
			Roles []string `json:"roles"`
		} `json:"realm_access"`
	}
	// An ID token tells who signed in, a refresh token is the issuer's own, a logout
	// token ends sessions: none of them is a permission to call an API. Issuers
	// other than Keycloak leave typ out.
	if err := token.Claims(&claims); err != nil || token.Subject == "" || claims.Type != "" && claims.Type != "Bearer" {
		return Identity{}, time.Time{}, ErrBadToken
	}
	return Identity{Subject: token.Subject, Client: claims.Client, Roles: claims.RealmAccess.Roles}, token.Expiry, nil
}

// discover asks the issuer for its configuration: once, when it answers.
func (b *Bearer) discover() (oidc.KeySet, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.keys != nil {
		return b.keys, nil
	}
	if time.Since(b.asked) < issuerRetry {
		return nil, b.failure
	}
	var configuration struct {
		Keys string `json:"jwks_uri"`
	}
	provider, err := oidc.NewProvider(oidc.ClientContext(context.Background(), b.client), b.issuer)
	if err == nil {
		err = provider.Claims(&configuration)
	}
	if err != nil {
		b.asked, b.failure = time.Now(), err
		return nil, err
	}
	b.keys = &keySet{url: configuration.Keys, client: b.client}
	return b.keys, nil
}

// notedKeys remembers the error of the one verification that it is made for.
type notedKeys struct {
	oidc.KeySet
	err error
}

func (n *notedKeys) VerifySignature(ctx context.Context, raw string) (payload []byte, err error) {
	payload, n.err = n.KeySet.VerifySignature(ctx, raw)
	return payload, n.err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
