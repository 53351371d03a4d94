package account

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// The clock is read under the lock, so that linked_at has the order of linking. A user
// without an identity is erased, and stays nobody.
const linkSQL = `
INSERT INTO account.identities (issuer, subject, user_id, linked_at)
SELECT $2, $3, user_id, clock_timestamp() FROM account.users
WHERE user_id = $1 AND (SELECT count(*) FROM account.identities WHERE user_id = $1) BETWEEN 1 AND $4::bigint - 1
ON CONFLICT (issuer, subject) DO NOTHING`

// Link links a further identity to a user and returns the account. Linking the user's own
// identity changes nothing. It fails with ErrNotFound if there is no such user or it is erased, with
// ErrIdentityTaken if the identity is another user's, with ErrTooManyIdentities if the
// user has MaxIdentities, and with ErrIdentityInvalid. Of concurrent calls that link one
// identity to different users, one succeeds.
//
// The caller must have verified both: that the request is the user's, and that the user
// can sign in with the identity.
func (s *Store) Link(ctx context.Context, userID, issuer, subject string) (Account, error) {
	user, err := id.Parse(id.User, userID)
	if err != nil {
		return Account{}, ErrNotFound
	}
	a, err := s.Get(ctx, issuer, subject)
	if err == nil && a.UserID == userID {
		return a, nil
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Account{}, err
	}
	known, err := s.change(ctx, user, linkSQL, issuer, subject, MaxIdentities)
	switch {
	case err != nil:
		return Account{}, wrap("link identity", err)
	case !known:
		return Account{}, ErrNotFound
	}
	// The identity's owner is the result, whichever call was faster.
	a, err = s.Get(ctx, issuer, subject)
	switch {
	case errors.Is(err, ErrNotFound):
		if _, err := s.Of(ctx, userID); err != nil {
			return Account{}, err
		}
		return Account{}, ErrTooManyIdentities
	case err != nil:
		return Account{}, err
	case a.UserID != userID:
		return Account{}, ErrIdentityTaken
	}
	return a, nil
}

const detachSQL = `
WITH roles AS (DELETE FROM account.user_roles WHERE user_id = $1)
DELETE FROM account.identities WHERE user_id = $1 RETURNING issuer, subject, linked_at`

// Detach deletes the identities and roles of a user in tx, and returns the identities.
// A later sign-in with one of them makes a new user. The user id stays.
func Detach(ctx context.Context, tx pgx.Tx, userID string) ([]Identity, error) {
	user, err := id.Parse(id.User, userID)
	if err != nil {
		return nil, ErrNotFound
	}
	if _, err := tx.Exec(ctx, lockSQL, user); err != nil {
		return nil, postgres.Wrap("detach identities", err)
	}
	rows, err := tx.Query(ctx, detachSQL, user)
	if err != nil {
		return nil, postgres.Wrap("detach identities", err)
	}
	identities, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Identity])
	return identities, postgres.Wrap("detach identities", err)
}
