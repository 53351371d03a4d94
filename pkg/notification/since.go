package notification

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Overlap is how far a reader of what was sent must look back. sent_at is the
// database's clock when the statement that finishes a batch begins, and others
// see the batch when that statement has committed: meanwhile, later batches can
// become visible first. The lease gives a statement up after 5 s, and the server
// after 10 when it was not told (statement_timeout, which package postgres sets
// in its usual mode). The other 5 s are for the commit itself and for clocks that
// differ when a standby takes over.
const Overlap = 15 * time.Second

// WITH TIES: a batch is sent at one moment, and a page that ended inside it could
// not be gone on from. notification_id orders the few of a moment, so it is not
// in the index.
const sinceSQL = `
SELECT ` + columns + `, read_from
FROM (
	SELECT *, now() AS read_from
	FROM notification.notifications
	WHERE user_id = $1 AND sent_at > $2
	ORDER BY sent_at
	FETCH FIRST ($3) ROWS WITH TIES
) n
ORDER BY sent_at, notification_id`

// Since returns what was sent to a user after a time, in the order of sent_at and
// then of notification_id: up to limit notifications, 100 at most, and with the
// last of them all that were sent at the same moment (as many as a batch has,
// LEASE_BATCH). So the last SentAt of a page is where the next page begins, and
// a page with fewer than limit (or than 100) is the last one for now.
//
// It is the last for now only: a notification may become visible up to Overlap
// after its SentAt, behind later ones. Whoever reads again later begins Overlap
// before the moment of the earlier read and skips what it knows. A Follower does.
func (s *Store) Since(ctx context.Context, userID string, after time.Time, limit int) ([]Notification, error) {
	list, _, err := s.since(ctx, userID, after, limit)
	return list, err
}

// since also returns when it read, by the database's clock, or zero when it found
// nothing.
func (s *Store) since(ctx context.Context, userID string, after time.Time, limit int) (list []Notification, at time.Time, err error) {
	rows, err := s.pool.Query(ctx, sinceSQL, userID, after, pageSize(limit))
	if err != nil {
		return nil, at, postgres.Wrap("read what was sent", err)
	}
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Notification, error) {
		n, _, err := scan(row, &at)
		return n, err
	})
	return list, at, postgres.Wrap("read what was sent", err)
}

// SentAt returns when a notification was sent to a user, for a reader that comes
// back and names the last one it saw: it goes on from Overlap before. The error is
// ErrNotFound when the user has no such notification, or it is not SENT.
func (s *Store) SentAt(ctx context.Context, userID, notificationID string) (time.Time, error) {
	key, err := parseID(notificationID)
	if err != nil {
		return time.Time{}, err
	}
	var sentAt time.Time
	err = s.pool.QueryRow(ctx, `SELECT sent_at FROM notification.notifications
		WHERE notification_id = $1 AND user_id = $2 AND sent_at IS NOT NULL`, key, userID).Scan(&sentAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, ErrNotFound
	}
	return sentAt.UTC(), postgres.Wrap("read when it was sent", err)
}
