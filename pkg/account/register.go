package account

import (
	"context"
	"errors"
	"slices"

	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Only the call that inserted the identity creates its user, so a lost race leaves no
// user behind.
const createSQL = `
WITH met AS (
	INSERT INTO account.identities (issuer, subject, user_id) VALUES ($1, $2, $3)
	ON CONFLICT (issuer, subject) DO NOTHING
	RETURNING user_id
), made AS (
	INSERT INTO account.users (user_id) SELECT user_id FROM met
)
INSERT INTO account.user_roles (user_id, role)
SELECT user_id, role FROM met, unnest($4::text[]) AS role`

// A user that was erased meanwhile gets no roles.
const rolesSQL = `
WITH gone AS (
	DELETE FROM account.user_roles WHERE user_id = $1 AND role <> ALL ($2::text[])
)
INSERT INTO account.user_roles (user_id, role)
SELECT $1, role FROM unnest($2::text[]) AS role
WHERE EXISTS (SELECT FROM account.identities WHERE user_id = $1)
ON CONFLICT (user_id, role) DO NOTHING`

// Register returns the account of an identity, and creates it for an unknown one. roles
// replace the stored ones: sorted, each once, and the first MaxRoles of them. Invalid
// roles (empty, longer than 64 characters, with a NUL) are omitted, so that an odd role
// at the issuer locks nobody out. Calls may be repeated and concurrent: there is one
// user, and a repeated call with the same roles writes nothing. It fails with
// ErrIdentityInvalid.
func (s *Store) Register(ctx context.Context, issuer, subject string, roles []string) (Account, error) {
	roles = tidy(roles)
	a, err := s.Get(ctx, issuer, subject)
	if errors.Is(err, ErrNotFound) {
		if err := s.create(ctx, issuer, subject, roles); err != nil {
			return Account{}, err
		}
		// Ours, or that of a faster call.
		a, err = s.Get(ctx, issuer, subject)
	}
	if err != nil || slices.Equal(a.Roles, roles) {
		return a, err
	}
	user, err := id.Parse(id.User, a.UserID)
	if err != nil {
		return Account{}, err
	}
	if _, err := s.change(ctx, user, rolesSQL, roles); err != nil {
		return Account{}, postgres.Wrap("replace roles", err)
	}
	a.Roles = roles
	return a, nil
}

func (s *Store) create(ctx context.Context, issuer, subject string, roles []string) error {
	user := id.New()
	return wrap("make account", postgres.Retry(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, createSQL, issuer, subject, user, roles)
		return err
	}))
}

// tidy returns the roles to store. None is shortened or repaired, because that could
// make it another role.
func tidy(roles []string) []string {
	kept := make([]string, 0, len(roles))
	for _, role := range roles {
		if fits(role, maxRole) {
			kept = append(kept, role)
		}
	}
	slices.Sort(kept)
	kept = slices.Compact(kept)
	return kept[:min(len(kept), MaxRoles)]
}
