package auth

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/miniserversystem/miniserver/pkg/cache"
)

// StatementHeader carries the gateway's statement to a function. The gateway drops it
// from incoming requests.
const StatementHeader = "Miniserver-Caller"

const (
	statementIssuer = "miniserver-gateway"
	// StatementLifetime is how long a function accepts a statement.
	StatementLifetime = 60 * time.Second
	// statementReuse is how long the gateway reuses a statement: signing and verifying
	// cost more than the rest of a small request.
	statementReuse = 30 * time.Second
	// maxRemembered bounds the cached statements and tokens.
	maxRemembered = 10_000
	// maxRememberedBytes bounds each statement that is cached: callers choose paths, of up
	// to 16 KiB, before any function has looked at them.
	maxRememberedBytes = 2 << 10
)

// claims are a statement's.
type claims struct {
	jwt.Claims
	Method         string   `json:"method"`
	Path           string   `json:"path"`
	IdentityIssuer string   `json:"identity_issuer,omitempty"`
	UserID         string   `json:"user_id,omitempty"`
	Client         string   `json:"client,omitempty"`
	Roles          []string `json:"roles,omitempty"`
}

// Call is the scope of a statement. It excludes the body, which would need a signature
// for every request instead of one for each polled path; and an attacker who can read
// statements between gateway and function can read and answer the requests, too. But a
// statement for a read must not allow a write.
type Call struct {
	Function string
	Method   string
	Path     string // unescaped, because proxies may escape it differently; without the query
}

// Signer signs statements. It is safe for concurrent use.
type Signer struct {
	signer jose.Signer
	reused *cache.Cache[stated, string]
}

// NewSigner takes an Ed25519 private key as a JWK with a kid.
func NewSigner(privateJWK string) (*Signer, error) {
	var key jose.JSONWebKey
	if err := json.Unmarshal([]byte(privateJWK), &key); err != nil || key.IsPublic() || key.KeyID == "" {
		return nil, errors.New("IDENTITY_SIGNING_KEY is not a private JWK with a kid; make identity-key prints one")
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, errors.New("IDENTITY_SIGNING_KEY is not an Ed25519 key; make identity-key prints one")
	}
	return &Signer{signer: signer, reused: cache.New[stated, string](maxRemembered)}, nil
}

// stated is everything that a statement says.
type stated struct {
	call                            Call
	issuer, subject, userID, client string
	roles                           string
}

// listed is one text for several, which may contain any separator.
func listed(texts []string) string {
	var list strings.Builder
	for _, text := range texts {
		list.WriteString(strconv.Itoa(len(text)))
		list.WriteByte(':')
		list.WriteString(text)
	}
	return list.String()
}

// Sign returns a statement that i makes call.
func (s *Signer) Sign(call Call, i Identity) (string, error) {
	who, now := stated{call, i.Issuer, i.Subject, i.UserID, i.Client, listed(i.Roles)}, time.Now()
	if text, ok := s.reused.Get(who, now); ok {
		return text, nil
	}
	text, err := jwt.Signed(s.signer).Claims(claims{
		Claims: jwt.Claims{
			Issuer: statementIssuer, Subject: i.Subject, Audience: jwt.Audience{call.Function},
			// No iat: a function whose clock is a little behind would refuse it.
			Expiry: jwt.NewNumericDate(now.Add(StatementLifetime)),
		},
		Method: call.Method, Path: call.Path,
		IdentityIssuer: i.Issuer, UserID: i.UserID, Client: i.Client, Roles: i.Roles,
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign statement: %w", err)
	}
	if len(text) <= maxRememberedBytes {
		s.reused.Put(who, text, now.Add(statementReuse))
	}
	return text, nil
}

// Verifier verifies statements for one function.
type Verifier struct {
	function string
	keys     jose.JSONWebKeySet
	known    *cache.Cache[string, statement]
}

// statement is a verified one.
type statement struct {
	call     Call
	identity Identity
}

// NewVerifier takes the gateway's public keys as a JWK Set; several, while keys
// are rotated.
func NewVerifier(function, publicJWKS string) (*Verifier, error) {
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(publicJWKS), &keys); err != nil || len(keys.Keys) == 0 {
		return nil, errors.New("IDENTITY_VERIFY_KEYS is not a JWK Set with a key; make identity-key prints one")
	}
	for _, key := range keys.Keys {
		if _, ok := key.Key.(ed25519.PublicKey); !ok || key.KeyID == "" {
			return nil, errors.New("IDENTITY_VERIFY_KEYS may hold public Ed25519 keys with a kid only; make identity-key prints one")
		}
	}
	return &Verifier{function: function, keys: keys, known: cache.New[string, statement](maxRemembered)}, nil
}

// Verify returns the caller of a call with this method and path, or ErrStatement.
func (v *Verifier) Verify(text, method, path string) (Identity, error) {
	known, err := v.read(text)
	if err == nil && known.call != (Call{v.function, method, path}) {
		err = ErrStatement
	}
	if err != nil {
		return Identity{}, err
	}
	return known.identity, nil
}

// read verifies a statement to this function and returns its content.
func (v *Verifier) read(text string) (statement, error) {
	now := time.Now()
	if known, ok := v.known.Get(text, now); ok {
		return known, nil
	}
	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return statement{}, ErrStatement
	}
	var c claims
	if err := token.Claims(v.keys, &c); err != nil {
		return statement{}, ErrStatement
	}
	expected := jwt.Expected{Issuer: statementIssuer, AnyAudience: jwt.Audience{v.function}, Time: now}
	if err := c.ValidateWithLeeway(expected, 0); err != nil || c.Expiry == nil || c.Subject == "" {
		return statement{}, ErrStatement
	}
	verified := statement{
		Call{v.function, c.Method, c.Path},
		Identity{Issuer: c.IdentityIssuer, Subject: c.Subject, UserID: c.UserID, Client: c.Client, Roles: c.Roles},
	}
	if len(text) <= maxRememberedBytes {
		v.known.Put(text, verified, c.Expiry.Time())
	}
	return verified, nil
}
