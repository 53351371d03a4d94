package notification

import (
	"context"
	"log/slog"
)

// LogChannel sends a notification by writing one structured line.
type LogChannel struct{ Log *slog.Logger }

var _ Channel = LogChannel{}

// Send writes the line; it cannot fail.
func (c LogChannel) Send(ctx context.Context, o Outgoing) error {
	c.Log.InfoContext(ctx, "notification", "notification_id", o.ID, "event_id", o.EventID,
		"event_type", o.EventType, "user_id", o.UserID, "attempt", o.Attempt, "payload", o.Payload)
	return nil
}
