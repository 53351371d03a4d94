// Package notify is the function that accepts events from JetStream and makes
// notifications of them, once per event and recipient.
package notify

import (
	"github.com/miniserversystem/miniserver/functions/internal/consume"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/notification"
)

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("notification")
	if err != nil {
		return err
	}
	consumption, err := consume.New(e, notification.NewStore(pool), "deliver")
	if err != nil {
		return err
	}
	var sources []tick.Source
	for _, subject := range event.ForPeople {
		sources = append(sources, consumption.Source(subject, jetstream.NewConsumer(e.NATS(), subject, notification.Consumer)))
	}
	e.Tick(sources...)
	return nil
}
