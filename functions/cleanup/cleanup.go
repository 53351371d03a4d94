// Package cleanup is the function that removes rows past their retention, in short
// bounded transactions, and makes audit partitions ahead of time.
package cleanup

import (
	"context"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// New registers the function.
func New(e *fn.Env) error {
	entitlements, err := e.Postgres("entitlement_cleanup")
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
	s := e.Settings
	owned := entitlement.NewStore(entitlements, s.IdempotencyRetention)
	inbox := notification.NewStore(notifications)
	moved := transfer.NewStore(transfers)
	keepOutbox := outbox.Retention{Published: s.OutboxRetention, Unreconciled: s.ProcessedRetention - settings.RememberedLonger, Failed: s.FailedRetention}
	keepMoved := transfer.Retention{Outbox: keepOutbox, Processed: s.ProcessedRetention}
	keepOwned := entitlement.Retention{Outbox: keepOutbox, AuditMonths: s.AuditRetentionMonths}
	keepNotifications := notification.Retention{Processed: s.ProcessedRetention, Sent: s.SentRetention, Failed: s.FailedRetention}

	partitions := func(ctx context.Context) (lease.Report, error) {
		audit, err := owned.EnsureAudit(ctx, keepOwned)
		if audit.PartitionsMade+audit.PartitionsDropped > 0 {
			e.Logger().InfoContext(ctx, "audit partitions", "made", audit.PartitionsMade, "dropped", audit.PartitionsDropped)
		}
		if audit.PartitionsSkipped > 0 {
			e.Logger().DebugContext(ctx, "audit partitions not made: their rows stay in the DEFAULT one", "months", audit.PartitionsSkipped)
		}
		return lease.Report{}, err
	}
	e.Tick(
		tick.Source{Name: "audit partitions", Step: partitions},
		tick.Source{Name: "entitlement", Step: func(ctx context.Context) (lease.Report, error) {
			counts, err := owned.Cleanup(ctx, keepOwned)
			if err == nil && !counts.More {
				err = warnOfUnreconciled(ctx, e, "entitlement", func() (int, error) { return owned.Unreconciled(ctx, keepOwned) })
			}
			return removed(counts.Deleted, counts.More), err
		}},
		tick.Source{Name: "notification", Step: func(ctx context.Context) (lease.Report, error) {
			deleted, more, err := inbox.Cleanup(ctx, keepNotifications)
			return removed(deleted, more), err
		}},
		tick.Source{Name: "transfer", Step: func(ctx context.Context) (lease.Report, error) {
			deleted, more, err := moved.Cleanup(ctx, keepMoved)
			if err == nil && !more {
				err = warnOfUnreconciled(ctx, e, "transfer", func() (int, error) { return moved.Unreconciled(ctx, keepMoved) })
			}
			return removed(deleted, more), err
		}},
	)
	return nil
}

func removed(rows int, more bool) lease.Report {
	return lease.Report{Claimed: rows, Done: rows, More: more}
}

// warnOfUnreconciled logs a warning when published events are kept for longer than
// OUTBOX_RETENTION because reconcile makes no progress: rows pile up, and events that the
// broker lost are not published again.
func warnOfUnreconciled(ctx context.Context, e *fn.Env, name string, count func() (int, error)) error {
	n, err := count()
	if n > 0 {
		e.Logger().WarnContext(ctx, "published events are kept: reconcile has not passed them", "outbox", name, "events", n, "counted_up_to", postgres.SweepBatch)
	}
	return err
}
