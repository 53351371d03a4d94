// Package auth says who calls. The gateway checks the caller's bearer token and
// passes on a signed statement; functions believe that statement and nothing
// else. A statement names one function as its audience and lives for a minute.
package auth

import (
	"context"
	"slices"

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
	Subject string   // the user's id, or the service account's
	Client  string   // the client that the token was issued to; may be empty
	Roles   []string // as in the token
}

// Has reports whether the caller has one of roles.
func (i Identity) Has(roles ...string) bool {
	return slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(i.Roles, role) })
}

// MayRead reports whether the caller may read what belongs to userID.
func (i Identity) MayRead(userID string) bool {
	return i.Subject != "" && i.Subject == userID || i.Has(RoleEntitlementWriter, RoleOperator)
}

// Errors about callers.
var (
	ErrNoToken = fault.New(fault.Unauthenticated, "token_missing",
		"Send an access token in the header Authorization: Bearer <token>.")
	ErrBadToken = fault.New(fault.Unauthenticated, "token_invalid",
		"The access token is not valid here or has expired; get a new one from the issuer.")
	ErrForbidden = fault.New(fault.Forbidden, "role_missing",
		"The access token is valid, but the caller lacks the role that this needs.")
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
