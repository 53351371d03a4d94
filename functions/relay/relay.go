// Package relay is the function that carries committed events from the outboxes to
// their broker: JetStream, and for completed transfers RabbitMQ where that is chosen.
package relay

import (
	"context"

	"github.com/miniserversystem/miniserver/functions/internal/broker"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// New registers the function.
func New(e *fn.Env) error {
	entitlements, err := e.Postgres("entitlement")
	if err != nil {
		return err
	}
	transfers, err := e.Postgres("transfer")
	if err != nil {
		return err
	}
	if err := watchBacklog(e, map[string]backlog{
		"entitlement": {entitlements, entitlement.OutboxTable}, "transfer": {transfers, transfer.OutboxTable},
	}); err != nil {
		return err
	}
	relays := []*outbox.Relay{
		outbox.NewRelay(entitlements, entitlement.OutboxTable, e.Policy(), e.Worker(), jetstream.NewPublisher(e.NATS()), func() { e.Wake("notify") }, e.Logger()),
		outbox.NewRelay(transfers, transfer.OutboxTable, e.Policy(), e.Worker(), broker.Publisher(e), func() { e.Wake("settle"); e.Wake("notify") }, e.Logger()),
	}
	e.Tick(func(ctx context.Context) (fn.Report, error) {
		return fn.SideBySide(ctx, relays, func(ctx context.Context, r *outbox.Relay) (fn.Report, error) { return r.Step(ctx) })
	})
	return nil
}
