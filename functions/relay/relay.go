// Package relay is the function that carries committed events from the outboxes to
// their broker: JetStream, and for completed transfers RabbitMQ where that is chosen.
package relay

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"

	"github.com/miniserversystem/miniserver/functions/internal/backlog"
	"github.com/miniserversystem/miniserver/functions/internal/broker"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
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
	waiting := func(domain, table string, pool *pgxpool.Pool) backlog.Table {
		return backlog.Table{Name: table, Done: "published_at", InFlight: outbox.InFlight, Labels: []attribute.KeyValue{attribute.String("outbox", domain)}, Pool: pool}
	}
	if err := backlog.Watch(e, "outbox",
		waiting("entitlement", entitlement.OutboxTable, entitlements), waiting("transfer", transfer.OutboxTable, transfers),
	); err != nil {
		return err
	}
	// Each subject has its own relay: one whose stream is full, or whose broker is away,
	// holds up no other.
	source := func(name string, c outbox.RelayConfig) tick.Source {
		c.Policy, c.Worker, c.Log = e.Policy(), e.Worker(), e.Logger()
		return tick.Source{Name: name, Step: outbox.NewRelay(c).Step, AtOnce: outbox.AtOnce}
	}
	notify, settle := e.Waker("notify"), e.Waker("settle")
	e.Tick(
		source("entitlement", outbox.RelayConfig{
			Pool: entitlements, Table: entitlement.OutboxTable,
			Publisher: jetstream.NewPublisher(e.NATS(), event.EntitlementSubject), Published: notify,
		}),
		source("transfer completed", outbox.RelayConfig{
			Pool: transfers, Table: transfer.OutboxTable, Where: transfer.CompletedEvents,
			Publisher: broker.Publisher(e), Published: settle,
		}),
		source("transfer settled", outbox.RelayConfig{
			Pool: transfers, Table: transfer.OutboxTable, Where: transfer.SettledEvents,
			Publisher: jetstream.NewPublisher(e.NATS(), event.SettledSubject), Published: notify,
		}),
	)
	return nil
}
