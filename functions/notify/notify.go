// Package notify is the function that accepts events from JetStream and makes
// notifications of them, once per event and recipient.
package notify

import (
	"context"

	"github.com/miniserversystem/miniserver/functions/internal/consume"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/notification"
)

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("notification")
	if err != nil {
		return err
	}
	consumption := consume.New(e, notification.NewStore(pool), "deliver")
	var consumers []consume.Source
	for _, subject := range event.ForPeople {
		consumers = append(consumers, jetstream.NewConsumer(e.NATS(), subject, notification.Consumer))
	}
	// Side by side: a fetch that finds nothing waits a moment, which must not hold up
	// the others.
	e.Tick(func(ctx context.Context) (fn.Report, error) {
		return fn.SideBySide(ctx, consumers, consumption.Step)
	})
	return nil
}
