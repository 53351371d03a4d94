package notification

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// MarkRead marks a user's notification read, whatever its status, and returns it. The
// first mark counts: later or concurrent marks change nothing and return the same
// ReadAt. The error is ErrNotFound if the user has no such notification.
func (s *Store) MarkRead(ctx context.Context, userID, notificationID string) (Notification, error) {
	key, err := parseID(notificationID)
	if err != nil {
		return Notification{}, err
	}
	// coalesce reads the row after the lock, so a concurrent mark sees the first one's
	// time.
	rows, err := s.pool.Query(ctx, `
		UPDATE notification.notifications SET read_at = coalesce(read_at, now())
		WHERE notification_id = $1 AND user_id = $2
		RETURNING `+columns, key, userID)
	if err != nil {
		return Notification{}, postgres.Wrap("mark as read", err)
	}
	n, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Notification, error) {
		n, _, err := scan(row)
		return n, err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Notification{}, ErrNotFound
	}
	return n, postgres.Wrap("mark as read", err)
}
