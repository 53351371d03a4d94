package notification

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/cursor"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Overlap is how far a reader of SENT notifications must look back. sent_at is the
// database's time at which the statement that finishes a batch begins, and the batch
// becomes visible at its commit: meanwhile, later batches can become visible first. The
// lease abandons a statement after 5 s, and the server ends it after 10 s at the latest
// (statement_timeout, which package postgres sets in its usual mode). The other 5 s are
// for the commit itself and for clocks that differ when a standby takes over.
const Overlap = 15 * time.Second

// WITH TIES: all rows of a batch have the same sent_at, and no page could continue from
// within a batch. notification_id only orders rows of the same moment, so it is not in
// the index.
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

// Since returns the notifications sent to a user after a time, in the order of sent_at
// and then of notification_id: up to limit, 100 at most, and with the last one all that
// were sent at the same moment (at most a batch, LEASE_BATCH). So the next page begins at
// the last SentAt of a page, and a page with fewer than limit (or than 100) is the last
// one for now.
//
// Only for now, because a notification may become visible up to Overlap after its
// SentAt, behind later ones. A later read begins Overlap before the earlier one and
// skips known notifications, as a Follower does.
func (s *Store) Since(ctx context.Context, userID string, after time.Time, limit int) ([]Notification, error) {
	list, _, err := s.since(ctx, userID, after, limit)
	return list, err
}

// since also returns the database's time of the read, or zero if it found nothing.
func (s *Store) since(ctx context.Context, userID string, after time.Time, limit int) (list []Notification, at time.Time, err error) {
	rows, err := s.pool.Query(ctx, sinceSQL, userID, after, cursor.Limit(limit))
	if err != nil {
		return nil, at, postgres.Wrap("read what was sent", err)
	}
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Notification, error) {
		n, _, err := scan(row, &at)
		return n, err
	})
	return list, at, postgres.Wrap("read what was sent", err)
}

// SentAt returns when a notification was sent to a user. A reader that resumes names the
// last notification it saw, and continues Overlap before its time. The error is
// ErrNotFound if the user has no such notification, or it is not SENT.
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
