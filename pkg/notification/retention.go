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

// Cleanup deletes one batch of each kind that is due and returns how many rows
// went; more is true when a batch was full.
func (s *Store) Cleanup(ctx context.Context, r Retention) (deleted int, more bool, err error) {
	now, err := postgres.Now(ctx, s.pool)
	if err != nil {
		return 0, false, err
	}
	// Ids of events and notifications are UUIDv7, so primary keys find the oldest rows.
	processed, sent := now.Add(-r.Processed), now.Add(-r.Sent)
	return postgres.Sweep(ctx, s.pool,
		postgres.Delete{SQL: `DELETE FROM notification.processed_events WHERE event_id IN (
			SELECT event_id FROM notification.processed_events
			WHERE event_id < $2 AND processed_at <= $3
			ORDER BY event_id LIMIT $1 FOR UPDATE SKIP LOCKED)`, Args: []any{id.Before(processed), processed}},
		postgres.Delete{SQL: `DELETE FROM notification.notifications WHERE notification_id IN (
			SELECT notification_id FROM notification.notifications
			WHERE notification_id < $2 AND status = 'SENT' AND sent_at <= $3
			ORDER BY notification_id LIMIT $1 FOR UPDATE SKIP LOCKED)`, Args: []any{id.Before(sent), sent}},
	)
}
