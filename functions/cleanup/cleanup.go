// Package cleanup is the function that removes what is no longer kept, in short
// bounded transactions, and makes audit partitions ahead of time.
package cleanup

import (
	"context"
	"errors"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

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
	s := e.Settings
	owned := entitlement.NewStore(entitlements, s.IdempotencyRetention)
	told := notification.NewStore(notifications)
	moved := transfer.NewStore(transfers)
	keepMoved := transfer.Retention{Published: s.OutboxRetention, Processed: s.ProcessedRetention}
	keepOwned := entitlement.Retention{Published: s.OutboxRetention, AuditMonths: s.AuditRetentionMonths}
	keepTold := notification.Retention{Processed: s.ProcessedRetention, Sent: s.SentRetention}

	e.Tick(func(ctx context.Context) (fn.Report, error) {
		// One part that fails must not keep the others from their work.
		audit, auditErr := owned.EnsureAudit(ctx, keepOwned)
		if audit.PartitionsMade+audit.PartitionsDropped > 0 {
			e.Logger().InfoContext(ctx, "audit partitions", "made", audit.PartitionsMade, "dropped", audit.PartitionsDropped)
		}
		if audit.PartitionsSkipped > 0 {
			e.Logger().DebugContext(ctx, "audit partitions not made: their rows stay in the DEFAULT one", "months", audit.PartitionsSkipped)
		}
		counts, ownedErr := owned.Cleanup(ctx, keepOwned)
		deleted, more, toldErr := told.Cleanup(ctx, keepTold)
		dropped, moreMoved, movedErr := moved.Cleanup(ctx, keepMoved)
		removed := counts.Deleted + deleted + dropped
		return fn.Report{Claimed: removed, Done: removed, More: counts.More || more || moreMoved}, errors.Join(auditErr, ownedErr, toldErr, movedErr)
	})
	return nil
}
