package notification

import (
	"context"
	"log/slog"
	"time"
)

// LogChannel sends a notification by writing one structured line.
type LogChannel struct{ Log *slog.Logger }

var _ Channel = LogChannel{}

// Send writes the line at any log level, because the line is the delivery.
func (c LogChannel) Send(ctx context.Context, o Outgoing) error {
	line := slog.NewRecord(time.Now(), slog.LevelInfo, "notification", 0)
	line.Add("notification_id", o.ID, "event_id", o.EventID, "event_type", o.EventType,
		"user_id", o.UserID, "attempt", o.Attempt, "payload", o.Payload)
	return c.Log.Handler().Handle(ctx, line)
}
