// Package reconcile is the function that publishes again what the broker lost
// after it was published: it asks notification which events never arrived.
package reconcile

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/outbox"
)

// consumer asks both what notification has and what JetStream still holds for it.
type consumer struct {
	store    *notification.Store
	messages *jetstream.Consumer
}

func (c consumer) Missing(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	return c.store.Missing(ctx, ids)
}

func (c consumer) Caught(ctx context.Context, age time.Duration) (bool, error) {
	return c.messages.Caught(ctx, age)
}

// New registers the function.
func New(e *fn.Env) error {
	entitlements, err := e.Postgres("entitlement")
	if err != nil {
		return err
	}
	notifications, err := e.Postgres("notification")
	if err != nil {
		return err
	}
	reconciler := outbox.NewReconciler(entitlements, entitlement.OutboxTable, entitlement.ReconciledTable, notification.Consumer,
		jetstream.NewPublisher(e.NATS()),
		consumer{notification.NewStore(notifications), jetstream.NewConsumer(e.NATS(), event.EntitlementSubject, notification.Consumer)},
		e.Settings.ReconcileAfter, e.Logger())
	e.Tick(func(ctx context.Context) (fn.Report, error) {
		report, err := reconciler.Step(ctx)
		if report.Retried > 0 {
			e.Wake("notify")
		}
		return report, err
	})
	return nil
}
