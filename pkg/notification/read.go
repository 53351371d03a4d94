package notification

import (
	"context"
	"errors"
	"time"

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

// SentWithin are the notifications that were sent within some time.
type SentWithin struct {
	N        int
	P50, P99 time.Duration // from the event to its delivery
}

// Sent returns how many notifications were sent from one time until before another, and
// how long that took.
func (s *Store) Sent(ctx context.Context, from, until time.Time) (sent SentWithin, err error) {
	var seconds []float64
	err = s.pool.QueryRow(ctx, `
		SELECT count(*), coalesce(percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY extract(epoch FROM sent_at - occurred_at)::float8), '{0,0}')
		FROM notification.notifications WHERE sent_at >= $1 AND sent_at < $2`, from, until).Scan(&sent.N, &seconds)
	if err != nil || len(seconds) != 2 {
		return SentWithin{}, postgres.Wrap("count sent notifications", err)
	}
	sent.P50, sent.P99 = time.Duration(seconds[0]*float64(time.Second)), time.Duration(seconds[1]*float64(time.Second))
	return sent, nil
}
