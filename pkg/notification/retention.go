package notification

import (
	"context"
	"time"

	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Retention says how long the domain keeps what it no longer needs. FAILED
// notifications and dead letters stay until a person decides.
type Retention struct {
	Processed time.Duration // event ids; longer than anything can come back
	Sent      time.Duration // notifications, after they were sent
}

// cleanupBatch bounds a DELETE, so that its transaction stays short.
const cleanupBatch = 1000

// Cleanup deletes one batch of each kind that is due and returns how many rows
// went; more is true when a batch was full.
func (s *Store) Cleanup(ctx context.Context, r Retention) (deleted int, more bool, err error) {
	var now time.Time
	if err := s.pool.QueryRow(ctx, `SELECT now()`).Scan(&now); err != nil {
		return 0, false, postgres.Wrap("cleanup", err)
	}
	// Ids of events and notifications are UUIDv7, so primary keys find the oldest rows.
	processed, sent := now.Add(-r.Processed), now.Add(-r.Sent)
	for _, batch := range []struct {
		sql  string
		args []any
	}{
		{`DELETE FROM notification.processed_events WHERE event_id IN (
			SELECT event_id FROM notification.processed_events
			WHERE event_id < $2 AND processed_at <= $3
			ORDER BY event_id LIMIT $1 FOR UPDATE SKIP LOCKED)`, []any{cleanupBatch, id.Before(processed), processed}},
		{`DELETE FROM notification.notifications WHERE notification_id IN (
			SELECT notification_id FROM notification.notifications
			WHERE notification_id < $2 AND status = 'SENT' AND sent_at <= $3
			ORDER BY notification_id LIMIT $1 FOR UPDATE SKIP LOCKED)`, []any{cleanupBatch, id.Before(sent), sent}},
	} {
		tag, err := s.pool.Exec(ctx, batch.sql, batch.args...)
		if err != nil {
			return deleted, more, postgres.Wrap("cleanup", err)
		}
		deleted += int(tag.RowsAffected())
		more = more || tag.RowsAffected() == cleanupBatch
	}
	return deleted, more, nil
}
