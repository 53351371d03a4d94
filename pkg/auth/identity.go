// Package auth authenticates callers. The gateway verifies bearer tokens (Bearer) or
// signs people in (SignIn), and forwards a signed statement; functions trust that
// statement and nothing else. A statement names one function as its audience, the
// method and path of one call to it, and lives for a minute.
package auth

import (
	"context"
	"slices"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// Roles that routes require.
const (
	RolePlayer            = "player"
	RoleEntitlementWriter = "entitlement-writer"
	RoleOperator          = "operator"
	RoleViewer            = "operations-viewer" // sees what operators see
)

var ours = []string{RolePlayer, RoleEntitlementWriter, RoleOperator, RoleViewer}

// Identity is the caller.
type Identity struct {
	Issuer  string   // the issuer of Subject
	Subject string   // the person or service account, by the issuer's name
	UserID  string   // our name (u_…); empty for services, and until it is looked up
	Client  string   // the client that the token was issued to; may be empty
	Roles   []string // as in the token, sorted; player if it has none of ours
	// AuthTime is when they last authenticated; zero if the issuer does not say. Only
	// the gateway knows it: it is not part of a statement.
	AuthTime time.Time `json:"-"`
}

// Has reports whether the caller has one of roles.
func (i Identity) Has(roles ...string) bool {
	return slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(i.Roles, role) })
}

// FreshFor is the age up to which an authentication counts as fresh.
const FreshFor = 5 * time.Minute

// Fresh returns ErrStale if the authentication is older than FreshFor, of unknown age, or
// from the future, where it would stay fresh for longer.
func (i Identity) Fresh() error {
	if age := time.Since(i.AuthTime); age > FreshFor || age < -clockSkew {
		return ErrStale
	}
	return nil
}

// maxRoles bounds the roles that a token adds to each statement.
const maxRoles = 64

// rolesOf returns the roles that count of a token's.
func rolesOf(claimed []string) []string {
	roles := slices.Clone(claimed)
	if !slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(ours, role) }) {
		roles = append(roles, RolePlayer)
	}
	slices.Sort(roles)
	roles = slices.Compact(roles)
	return roles[:min(len(roles), maxRoles)]
}

// Errors of authentication and authorization.
var (
	ErrNoToken = fault.New(fault.Unauthenticated, "token_missing",
		"Send an access token in the header Authorization: Bearer <token>.")
	ErrBadToken = fault.New(fault.Unauthenticated, "token_invalid",
		"The access token is not valid here or has expired; get a new one from the issuer.")
	ErrForbidden = fault.New(fault.Forbidden, "role_missing",
		"The access token is valid, but the caller lacks the role that this needs.")
	ErrStale = fault.New(fault.Forbidden, "sign_in_stale",
		"This needs a sign-in of the last five minutes, of both identities; sign in again.")
	ErrStatement = fault.New(fault.Unauthenticated, "statement_invalid",
		"Functions take requests from the gateway only; send this request there.")
)

type contextKey struct{}

// WithIdentity returns a context that carries the caller.
func WithIdentity(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, i)
}

// From returns the caller; the zero Identity if none was authenticated.
func From(ctx context.Context) Identity {
	i, _ := ctx.Value(contextKey{}).(Identity)
	return i
}
