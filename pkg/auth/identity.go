// Package auth says who calls. The gateway checks bearer tokens (Bearer) or signs
// people in (SignIn), and passes on a signed statement; functions believe that
// statement and nothing else. A statement names one function as its audience, the
// method and path of one call to it, and lives for a minute.
package auth

import (
	"context"
	"slices"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// Roles that routes ask for.
const (
	RolePlayer            = "player"
	RoleEntitlementWriter = "entitlement-writer"
	RoleOperator          = "operator"
)

// Identity is who calls.
type Identity struct {
	Issuer  string   // who vouches for Subject
	Subject string   // the person or service account, as the issuer calls them
	UserID  string   // as we call them (u_…); empty for services, and until it is asked for
	Client  string   // the client that the token was issued to; may be empty
	Roles   []string // as in the token, sorted; those who have none of ours are players
	// AuthTime is when they last proved who they are; zero when the issuer does not
	// say. Only the gateway knows it: it is not part of a statement.
	AuthTime time.Time `json:"-"`
}

// Has reports whether the caller has one of roles.
func (i Identity) Has(roles ...string) bool {
	return slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(i.Roles, role) })
}

// FreshFor is how long ago somebody may have proved who they are, for what needs
// fresh proof.
const FreshFor = 5 * time.Minute

// Fresh returns ErrStale when the proof is older than FreshFor, of unknown age, or
// from the future, where it would stay fresh for longer.
func (i Identity) Fresh() error {
	if age := time.Since(i.AuthTime); age > FreshFor || age < -clockSkew {
		return ErrStale
	}
	return nil
}

// maxRoles bounds what a token can make us carry along.
const maxRoles = 64

// rolesOf is what a token's roles come to.
func rolesOf(claimed []string) []string {
	roles := slices.Clone(claimed)
	if !slices.ContainsFunc(roles, func(role string) bool {
		return role == RolePlayer || role == RoleEntitlementWriter || role == RoleOperator
	}) {
		roles = append(roles, RolePlayer)
	}
	slices.Sort(roles)
	roles = slices.Compact(roles)
	return roles[:min(len(roles), maxRoles)]
}

// Errors about callers.
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

// WithIdentity returns a context that carries who calls.
func WithIdentity(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, i)
}

// From returns who calls; the zero Identity when nobody was authenticated.
func From(ctx context.Context) Identity {
	i, _ := ctx.Value(contextKey{}).(Identity)
	return i
}
