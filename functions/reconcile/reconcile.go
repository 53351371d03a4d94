// Package reconcile is the function that publishes again what the broker lost
// after it was published: it asks notification which events never arrived. Of
// matches it also removes those whose events have.
package reconcile

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/functions/internal/broker"
	"github.com/miniserversystem/miniserver/functions/internal/queues"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// store knows which events arrived.
type store interface {
	Missing(context.Context, []uuid.UUID) ([]uuid.UUID, error)
}

// consumer asks both what a domain has and what the broker still holds for it.
type consumer struct {
	store    store
	messages interface {
		Caught(context.Context, time.Duration) (bool, error)
	}
}

func (c consumer) Missing(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	return c.store.Missing(ctx, ids)
}

func (c consumer) Caught(ctx context.Context, age time.Duration) (bool, error) {
	return c.messages.Caught(ctx, age)
}

// either is for an outbox whose events go to one of two consumers: what neither of
// them has is missing.
type either [2]consumer

func (e either) Missing(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	missing, err := e[0].Missing(ctx, ids)
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	return e[1].Missing(ctx, missing)
}

func (e either) Caught(ctx context.Context, age time.Duration) (bool, error) {
	caught, err := e[0].Caught(ctx, age)
	if err != nil || !caught {
		return false, err
	}
	return e[1].Caught(ctx, age)
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
	transfers, err := e.Postgres("transfer")
	if err != nil {
		return err
	}
	told, settled := notification.NewStore(notifications), transfer.NewStore(transfers)
	people := func(subject string) consumer {
		return consumer{told, jetstream.NewConsumer(e.NATS(), subject, notification.Consumer)}
	}
	granted := outbox.NewReconciler(entitlements, entitlement.OutboxTable, entitlement.ReconciledTable, notification.Consumer,
		jetstream.NewPublisher(e.NATS()), people(event.EntitlementSubject), e.Settings.ReconcileAfter, e.Logger())
	moved := outbox.NewReconciler(transfers, transfer.OutboxTable, transfer.ReconciledTable, transfer.Consumer, broker.Publisher(e),
		either{{settled, broker.Completed(e)}, people(event.SettledSubject)},
		e.Settings.ReconcileAfter, e.Logger())
	waiting, _, err := queues.Open(e)
	if err != nil {
		return err
	}
	confirmer := matchmaking.NewConfirmer(waiting, people(event.MatchmakingSubject), e.Settings.ReconcileAfter, e.Logger())

	type source struct {
		step func(context.Context) (fn.Report, error)
		next []string // who has work when something was put on its way again
	}
	sources := []source{
		{granted.Step, []string{"notify"}},
		{moved.Step, []string{"settle", "notify"}},
		{confirmer.Step, []string{"announce"}},
	}
	e.Tick(func(ctx context.Context) (fn.Report, error) {
		return fn.SideBySide(ctx, sources, func(ctx context.Context, s source) (fn.Report, error) {
			report, err := s.step(ctx)
			if report.Retried > 0 {
				for _, next := range s.next {
					e.Wake(next)
				}
			}
			return report, err
		})
	})
	return nil
}
