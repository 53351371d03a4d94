package notification

import (
	"context"
	"time"

	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Retention is how long the domain keeps finished rows. Dead letters of unreadable
// messages stay until an operator decides.
type Retention struct {
	Processed time.Duration // event ids; longer than any event can be redelivered
	Sent      time.Duration // notifications, after they were sent
	Failed    time.Duration // FAILED notifications and their dead letters; 0 for ever
}

// Cleanup deletes one batch of each kind of due rows and returns their number; more is
// true when a batch was full.
func (s *Store) Cleanup(ctx context.Context, r Retention) (deleted int, more bool, err error) {
	now, err := postgres.Now(ctx, s.pool)
	if err != nil {
		return 0, false, err
	}
	// Event ids are UUIDv7, so the primary key finds the oldest rows. Notifications are
	// found by indexes that hold only rows to be deleted, and then by ctid, which does
	// not change while a row is locked.
	processed := now.Add(-r.Processed)
	deletes := []postgres.Delete{
		{SQL: `DELETE FROM notification.processed_events WHERE event_id IN (
			SELECT event_id FROM notification.processed_events
			WHERE event_id < $2 AND processed_at <= $3
			ORDER BY event_id LIMIT $1 FOR UPDATE SKIP LOCKED)`, Args: []any{id.Before(processed), processed}},
		{SQL: `DELETE FROM notification.notifications WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM notification.notifications
			WHERE sent_at <= $2 ORDER BY sent_at LIMIT $1 FOR UPDATE SKIP LOCKED))`, Args: []any{now.Add(-r.Sent)}},
	}
	if r.Failed > 0 {
		deletes = append(deletes, postgres.Delete{SQL: `
			WITH old AS MATERIALIZED (
				SELECT ctid AS place, notification_id FROM notification.notifications
				WHERE finished_at IS NOT NULL AND sent_at IS NULL AND finished_at <= $2
				ORDER BY finished_at LIMIT $1 FOR UPDATE SKIP LOCKED
			), letters AS (
				DELETE FROM notification.notification_dlq d USING old WHERE d.notification_id = old.notification_id
			)
			DELETE FROM notification.notifications WHERE ctid = ANY (ARRAY(SELECT place FROM old))`, Args: []any{now.Add(-r.Failed)}})
	}
	return postgres.Sweep(ctx, s.pool, deletes...)
}

// Erase deletes up to limit notifications of a user, whatever their status, with their dead
// letters, and returns their number.
func (s *Store) Erase(ctx context.Context, userID string, limit int) (n int, err error) {
	err = s.pool.QueryRow(ctx, `
		WITH erased AS (
			DELETE FROM notification.notifications WHERE notification_id IN (
				SELECT notification_id FROM notification.notifications WHERE user_id = $1 ORDER BY notification_id LIMIT $2)
			RETURNING notification_id
		), letters AS (
			DELETE FROM notification.notification_dlq d USING erased WHERE d.notification_id = erased.notification_id
		) SELECT count(*) FROM erased`, userID, limit).Scan(&n)
	return n, postgres.Wrap("erase notifications", err)
}
