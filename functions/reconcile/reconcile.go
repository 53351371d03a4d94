// Package reconcile is the function that republishes events that the broker lost: it asks
// notification which events never arrived. It also removes matches whose events have
// arrived.
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
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// store knows which events arrived.
type store interface {
	Missing(context.Context, []uuid.UUID) ([]uuid.UUID, error)
}

// consumer knows what a domain has and what the broker still holds for it.
type consumer struct {
	store    store
	messages interface {
		Caught(context.Context, time.Duration) (bool, error)
		Waiting(context.Context) (int, error)
	}
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
	transfers, err := e.Postgres("transfer")
	if err != nil {
		return err
	}
	notified, settled := notification.NewStore(notifications), transfer.NewStore(transfers)
	people := func(subject string) consumer {
		return consumer{notified, jetstream.NewConsumer(e.NATS(), subject, notification.Consumer)}
	}
	ofGrants, ofSettled, ofMatches := people(event.EntitlementSubject), people(event.SettledSubject), people(event.MatchmakingSubject)
	ofCompleted := consumer{settled, broker.Completed(e)}
	if err := watchLag(e, map[string]consumer{
		event.EntitlementSubject: ofGrants, event.SettledSubject: ofSettled, event.MatchmakingSubject: ofMatches, event.TransferSubject: ofCompleted,
	}); err != nil {
		return err
	}
	reconciler := func(c outbox.ReconcilerConfig) *outbox.Reconciler {
		c.After, c.Log = e.Settings.ReconcileAfter, e.Logger()
		return outbox.NewReconciler(c)
	}
	granted := reconciler(outbox.ReconcilerConfig{
		Pool: entitlements, Table: entitlement.OutboxTable, Marks: entitlement.ReconciledTable,
		Name: notification.Consumer, Consumer: ofGrants,
		Publisher: jetstream.NewPublisher(e.NATS(), event.EntitlementSubject),
	})
	completed := reconciler(outbox.ReconcilerConfig{
		Pool: transfers, Table: transfer.OutboxTable, Marks: transfer.ReconciledTable, Where: transfer.CompletedEvents,
		Name: transfer.Consumer, Consumer: ofCompleted, Publisher: broker.Publisher(e),
	})
	settlements := reconciler(outbox.ReconcilerConfig{
		Pool: transfers, Table: transfer.OutboxTable, Marks: transfer.ReconciledTable, Where: transfer.SettledEvents,
		Name: notification.Consumer, Consumer: ofSettled,
		Publisher: jetstream.NewPublisher(e.NATS(), event.SettledSubject),
	})
	waiting, _, err := queues.Open(e)
	if err != nil {
		return err
	}
	matches := matchmaking.NewConfirmer(waiting, ofMatches, e.Settings.ReconcileAfter, e.Logger())

	// source wakes next, the function that has work when something was published again.
	source := func(name string, step func(context.Context) (lease.Report, error), next string) tick.Source {
		wake := e.Waker(next)
		return tick.Source{Name: name, Step: func(ctx context.Context) (lease.Report, error) {
			report, err := step(ctx)
			if report.Retried > 0 {
				wake()
			}
			return report, err
		}}
	}
	e.Tick(
		source("entitlement", granted.Step, "notify"),
		source("transfer completed", completed.Step, "settle"),
		source("transfer settled", settlements.Step, "notify"),
		source("matches", matches.Step, "announce"),
	)
	return nil
}
