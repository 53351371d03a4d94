// Package relay is the function that carries committed events from the outbox to
// JetStream.
package relay

import (
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/outbox"
)

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("entitlement")
	if err != nil {
		return err
	}
	relay := outbox.NewRelay(pool, entitlement.OutboxTable, e.Policy(), e.Worker(),
		jetstream.NewPublisher(e.NATS()), func() { e.Wake("notify") }, e.Logger())
	e.Tick(relay.Step)
	return nil
}
