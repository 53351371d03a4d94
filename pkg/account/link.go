package account

import (
	"context"
	"errors"

	"github.com/miniserversystem/miniserver/pkg/id"
)

// The clock is read under the lock, so that linked_at has the order of linking.
const linkSQL = `
INSERT INTO account.identities (issuer, subject, user_id, linked_at)
SELECT $2, $3, user_id, clock_timestamp() FROM account.users
WHERE user_id = $1 AND (SELECT count(*) FROM account.identities WHERE user_id = $1) < $4
ON CONFLICT (issuer, subject) DO NOTHING`

// Link ties a further identity to a user and returns the account. Linking what
// is this user's already changes nothing. It fails with ErrNotFound when there
// is no such user, with ErrIdentityTaken when the identity is another user's,
// with ErrTooManyIdentities when the user has MaxIdentities, and with
// ErrIdentityInvalid. Of many that link one identity to different users at once,
// one succeeds.
//
// The caller must have seen proof of both: that who asks is the user, and that
// they can sign in with the identity.
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
	// Whose it is now says how it went, whoever was faster.
	a, err = s.Get(ctx, issuer, subject)
	switch {
	case errors.Is(err, ErrNotFound):
		return Account{}, ErrTooManyIdentities
	case err != nil:
		return Account{}, err
	case a.UserID != userID:
		return Account{}, ErrIdentityTaken
	}
	return a, nil
}
