package transfer

import (
	"context"
	"time"

	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Retention says how long the domain keeps what it no longer needs. Transfers, their
// ledger, and the answers to keys that were used for them are kept for ever.
type Retention struct {
	Outbox    outbox.Retention
	Processed time.Duration // event ids; longer than anything can come back
}

// unusedKept is how long a key stays that expired before it was used: a request with it
// is refused as unknown before and after.
const unusedKept = time.Hour

// Cleanup deletes one batch of each kind that is due and returns how many rows
// went; more is true when a batch was full.
func (s *Store) Cleanup(ctx context.Context, r Retention) (deleted int, more bool, err error) {
	now, err := postgres.Now(ctx, s.pool)
	if err != nil {
		return 0, false, err
	}
	processed := now.Add(-r.Processed)
	return postgres.Sweep(ctx, s.pool, append(r.Outbox.Deletes(OutboxTable, ReconciledTable, now),
		postgres.Delete{SQL: `DELETE FROM integration.idempotency_key WHERE idempotency_key_id IN (
			SELECT idempotency_key_id FROM integration.idempotency_key
			WHERE status IS NULL AND expires_at <= $2 ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)`, Args: []any{now.Add(-unusedKept)}},
		postgres.Delete{SQL: `DELETE FROM integration.idempotency_key WHERE idempotency_key_id IN (
			SELECT idempotency_key_id FROM integration.idempotency_key
			WHERE scope = $2 AND expires_at <= now() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)`, Args: []any{OpenScope}},
		postgres.Delete{SQL: `DELETE FROM integration.processed_events WHERE event_id IN (
			SELECT event_id FROM integration.processed_events
			WHERE event_id < $2 AND processed_at <= $3
			ORDER BY event_id LIMIT $1 FOR UPDATE SKIP LOCKED)`, Args: []any{id.Before(processed), processed}},
	)...)
}

// Unreconciled returns how many outbox rows are kept only because no reconciler has
// passed them, up to 1,000.
func (s *Store) Unreconciled(ctx context.Context, r Retention) (int, error) {
	return r.Outbox.Waiting(ctx, s.pool, OutboxTable, ReconciledTable)
}

// The subject may be a new user's already, and the keys of that user must answer again. A
// transfer tells whose key it is: one that the snapshot does not see yet is not the erased
// user's. A key without one is the erased user's if it is old enough.
const pseudonymiseSQL = `
UPDATE integration.idempotency_key SET client_id = $2
WHERE idempotency_key_id IN (
	SELECT idempotency_key_id FROM integration.idempotency_key k
	WHERE client_id = $1 AND scope = $3 AND (
		transfer_id IS NULL AND status IS DISTINCT FROM 'IN_PROGRESS' AND created_at < $4
		OR EXISTS (SELECT FROM core.transfer t JOIN core.account a ON a.account_id = t.from_account_id
			WHERE t.transfer_id = k.transfer_id AND (t.kind <> 'TRANSFER' OR a.owner_user_id = $2)))
	ORDER BY idempotency_key_id LIMIT $5 FOR UPDATE)`

// pseudonymiseBatch bounds the keys of one call.
const pseudonymiseBatch = 1000

// Pseudonymise puts the id of an erased user in the place of the subject at an
// issuer, in up to 1,000 keys of the user's transfers and of the reversals that the user
// asked for. before is when the last request in the user's name may have begun: keys of the
// subject without a transfer that were made later are a new user's. It is to be called until
// neither more keys are left, nor a transfer from that time is running, which the watchdog
// ends. Keys for opening accounts are left alone: they go by themselves. What moved refers to
// accounts and users only.
func (s *Store) Pseudonymise(ctx context.Context, subject, userID string, before time.Time) (more, running bool, err error) {
	// Read first: what ends after that is changed below.
	err = s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM integration.idempotency_key
		WHERE client_id = $1 AND scope = $2 AND status = 'IN_PROGRESS' AND started_at < $3)`, subject, Scope, before).Scan(&running)
	if err == nil {
		err = postgres.Retry(ctx, func(ctx context.Context) error { // transfers lock several keys in another order
			tag, err := s.pool.Exec(ctx, pseudonymiseSQL, subject, userID, Scope, before, pseudonymiseBatch)
			more = tag.RowsAffected() == pseudonymiseBatch
			return err
		})
	}
	return more, running, postgres.Wrap("pseudonymise keys", err)
}
