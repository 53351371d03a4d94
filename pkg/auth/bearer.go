package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/miniserversystem/miniserver/pkg/cache"
	"github.com/miniserversystem/miniserver/pkg/fault"
)

const (
	// maxTokenBytes bounds the input that is parsed from unknown callers.
	maxTokenBytes = 8 << 10
	// tokenRecheck bounds how long a verified token is trusted before it is verified
	// again with the issuer's current keys.
	tokenRecheck = 30 * time.Second
	// refusedRecheck is the same for a token that was refused: its key may be known soon.
	refusedRecheck = time.Second
	// maxRefused bounds how many of those are remembered.
	maxRefused = 1000
)

// algorithms are the accepted signatures of tokens, without none and the symmetric
// ones.
var algorithms = []string{oidc.RS256, oidc.ES256, oidc.PS256, oidc.EdDSA}

// joseAlgorithms are the same, in jose's type.
var joseAlgorithms = func() (same []jose.SignatureAlgorithm) {
	for _, algorithm := range algorithms {
		same = append(same, jose.SignatureAlgorithm(algorithm))
	}
	return same
}()

// Bearer verifies access tokens of one issuer.
type Bearer struct {
	issuer   *Issuer
	audience string
	clients  []string
	known    *cache.Cache[[sha256.Size]byte, Access] // by the token's hash
	refused  *cache.Cache[[sha256.Size]byte, error]
}

// Access holds the claims of a verified access token.
type Access struct {
	Identity
	Expiry time.Time
}

// NewBearer returns a verifier of tokens for audience, issued to one of clients; no
// clients means any.
func NewBearer(issuer *Issuer, audience string, clients []string) *Bearer {
	return &Bearer{
		issuer: issuer, audience: audience, clients: clients,
		known: cache.New[[sha256.Size]byte, Access](maxRemembered), refused: cache.New[[sha256.Size]byte, error](maxRefused),
	}
}

// Identify returns the caller of a request. Its errors are ErrNoToken without a token,
// ErrBadToken for an invalid one, and fault.Unavailable if the issuer cannot be reached.
func (b *Bearer) Identify(r *http.Request) (Access, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return Access{}, ErrNoToken
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return Access{}, ErrBadToken
	}
	return b.Check(r.Context(), token)
}

// Check returns the claims of an access token, or an error as Identify does. It remembers
// both: a client that sends a token of yesterday again and again costs little.
func (b *Bearer) Check(ctx context.Context, token string) (Access, error) {
	if token == "" || len(token) > maxTokenBytes {
		return Access{}, ErrBadToken
	}
	now := time.Now()
	sum := sha256.Sum256([]byte(token))
	if access, ok := b.known.Get(sum, now); ok {
		return access, nil
	}
	if err, ok := b.refused.Get(sum, now); ok {
		return Access{}, err
	}
	access, err := b.verify(ctx, token)
	if err != nil {
		if fault.Of(err) != fault.Unavailable {
			b.refused.Put(sum, err, now.Add(refusedRecheck))
		}
		return Access{}, err
	}
	b.known.Put(sum, access, earlier(access.Expiry, now.Add(tokenRecheck)))
	return access, nil
}

func (b *Bearer) verify(ctx context.Context, raw string) (Access, error) {
	issuer, err := b.issuer.describe(ctx)
	if err != nil {
		return Access{}, err
	}
	token, err := issuer.verify(ctx, b.issuer.url, b.audience, raw)
	if fault.Of(err) == fault.Unavailable {
		return Access{}, err
	}
	if err != nil {
		return Access{}, badToken(err)
	}
	var claims struct {
		Type        string `json:"typ"`
		Nonce       any    `json:"nonce"`
		AccessHash  any    `json:"at_hash"`
		Client      string `json:"azp"`
		ClientID    string `json:"client_id"` // RFC 9068's name of the same
		AuthTime    int64  `json:"auth_time"`
		RealmAccess struct {
			Roles []string `json:"roles"`
		} `json:"realm_access"`
	}
	if err := token.Claims(&claims); err != nil {
		return Access{}, badToken(err)
	}
	client := cmp.Or(claims.Client, claims.ClientID)
	switch {
	case token.Subject == "":
		return Access{}, badToken(errors.New("no subject"))
	case claims.Type != "" && claims.Type != "Bearer":
		// An ID token describes a sign-in, a refresh token is for the issuer, a logout
		// token ends sessions: none of them authorizes API calls. Issuers other than
		// Keycloak omit typ.
		return Access{}, badToken(errors.New("not an access token, but of type " + claims.Type))
	case claims.Type == "" && (claims.Nonce != nil || claims.AccessHash != nil):
		// An ID token of an issuer that omits typ. With the typ Bearer a nonce is fine:
		// older Keycloaks put it into access tokens, too.
		return Access{}, badToken(errors.New("not an access token: it has the nonce or at_hash of an ID token"))
	case len(b.clients) > 0 && !slices.Contains(b.clients, client):
		return Access{}, badToken(errors.New("issued to a client that is not in OIDC_CLIENTS"))
	}
	identity := Identity{Issuer: token.Issuer, Subject: token.Subject, Client: client, Roles: rolesOf(claims.RealmAccess.Roles)}
	if claims.AuthTime > 0 {
		identity.AuthTime = time.Unix(claims.AuthTime, 0)
	}
	return Access{Identity: identity, Expiry: token.Expiry}, nil
}

// verify checks the signature, issuer, audience and expiry of a token. Its error is
// fault.Unavailable if the keys cannot be fetched.
func (d *description) verify(ctx context.Context, issuer, audience, raw string) (*oidc.IDToken, error) {
	// The verifier hides why its keys could not be fetched.
	noted := &notedKeys{KeySet: d.keys}
	token, err := oidc.NewVerifier(issuer, noted, &oidc.Config{ClientID: audience, SupportedSigningAlgs: algorithms}).Verify(ctx, raw)
	return token, noted.explain(err)
}

// notedKeys records the error of a single verification.
type notedKeys struct {
	oidc.KeySet
	err error
}

func (n *notedKeys) VerifySignature(ctx context.Context, raw string) (payload []byte, err error) {
	payload, n.err = n.KeySet.VerifySignature(ctx, raw)
	return payload, n.err
}

func (n *notedKeys) explain(err error) error {
	if errors.Is(n.err, errKeysAway) {
		return away(n.err)
	}
	return err
}

func badToken(cause error) error {
	return &fault.Error{Kind: ErrBadToken.Kind, Code: ErrBadToken.Code, Detail: ErrBadToken.Detail, Cause: cause}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
