package account

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// One row for each identity, in one snapshot. COLLATE "C" is the order of Go's strings in
// every locale.
const accountSQL = `
SELECT u.user_id, u.created_at, i.issuer, i.subject, i.linked_at,
       ARRAY(SELECT role FROM account.user_roles r WHERE r.user_id = u.user_id ORDER BY role COLLATE "C")
FROM account.users u JOIN account.identities i USING (user_id)
WHERE u.user_id = {user}
ORDER BY i.linked_at, i.issuer COLLATE "C", i.subject COLLATE "C"`

var (
	byIdentitySQL = strings.Replace(accountSQL, "{user}", `(SELECT user_id FROM account.identities WHERE issuer = $1 AND subject = $2)`, 1)
	byIDSQL       = strings.Replace(accountSQL, "{user}", "$1", 1)
)

// Get returns the account of an identity, with the stored roles. It fails with
// ErrNotFound for an unknown identity and with ErrIdentityInvalid for an invalid one.
func (s *Store) Get(ctx context.Context, issuer, subject string) (Account, error) {
	if err := validate(issuer, subject); err != nil {
		return Account{}, err
	}
	return s.get(ctx, byIdentitySQL, issuer, subject)
}

// Of returns the account of a user, or ErrNotFound.
func (s *Store) Of(ctx context.Context, userID string) (Account, error) {
	user, err := id.Parse(id.User, userID)
	if err != nil {
		return Account{}, ErrNotFound
	}
	return s.get(ctx, byIDSQL, user)
}

func (s *Store) get(ctx context.Context, sql string, args ...any) (Account, error) {
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return Account{}, postgres.Wrap("read account", err)
	}
	var user uuid.UUID
	var a Account
	var i Identity
	_, err = pgx.ForEachRow(rows, []any{&user, &a.CreatedAt, &i.Issuer, &i.Subject, &i.LinkedAt, &a.Roles}, func() error {
		i.LinkedAt = i.LinkedAt.UTC()
		a.Identities = append(a.Identities, i)
		return nil
	})
	switch {
	case err != nil:
		return Account{}, postgres.Wrap("read account", err)
	case len(a.Identities) == 0:
		return Account{}, ErrNotFound
	}
	a.UserID, a.CreatedAt = id.Text(id.User, user), a.CreatedAt.UTC()
	return a, nil
}
