package entitlement

import (
	"context"

	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Retention is how long the domain keeps finished rows and audit.
type Retention struct {
	Outbox      outbox.Retention
	AuditMonths int // whole months of audit before the current one
}

// Counts is the report of one cleanup.
type Counts struct {
	Deleted, PartitionsMade, PartitionsDropped int
	// PartitionsSkipped counts months that stay in the DEFAULT partition; see EnsureAudit.
	PartitionsSkipped int
	More              bool // a batch was full
}

// Cleanup deletes one batch of each kind of due rows. Call it again while More.
func (s *Store) Cleanup(ctx context.Context, r Retention) (counts Counts, err error) {
	now, err := postgres.Now(ctx, s.pool)
	if err != nil {
		return counts, err
	}
	oldestAudit := monthOf(now).AddDate(0, -r.AuditMonths, 0)
	counts.Deleted, counts.More, err = postgres.Sweep(ctx, s.pool, append(r.Outbox.Deletes(OutboxTable, ReconciledTable, now),
		postgres.Delete{SQL: `DELETE FROM entitlement.idempotency_keys WHERE (caller, operation, idem_key) IN (
			SELECT caller, operation, idem_key FROM entitlement.idempotency_keys
			WHERE expires_at <= now() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)`},
		// Rows of months that had no partition when they were written.
		postgres.Delete{SQL: `DELETE FROM entitlement.entitlement_audit_default WHERE (audit_id, occurred_at) IN (
			SELECT audit_id, occurred_at FROM entitlement.entitlement_audit_default
			WHERE occurred_at < $2 ORDER BY occurred_at LIMIT $1 FOR UPDATE SKIP LOCKED)`, Args: []any{oldestAudit}},
	)...)
	return counts, err
}

// Unreconciled returns how many outbox rows are kept only because no reconciler has
// passed them, up to 1,000.
func (s *Store) Unreconciled(ctx context.Context, r Retention) (int, error) {
	return r.Outbox.Waiting(ctx, s.pool, OutboxTable, ReconciledTable)
}
