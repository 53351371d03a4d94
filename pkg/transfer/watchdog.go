package transfer

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Error codes of FAILED transfers that are not decided by balances.
const (
	TimedOut   = "TIMEOUT"     // left alone in progress, and ended by the watchdog
	RolledBack = "ROLLED_BACK" // Postgres refused TX1 as a whole
)

// watchdogBatch is how many keys EndOrphans ends at once.
const watchdogBatch = 500

// SKIP LOCKED: a key whose TX1 runs is not an orphan, and TX1 has it locked.
const orphansSQL = `
WITH orphans AS MATERIALIZED (
	SELECT idempotency_key_id FROM integration.idempotency_key
	WHERE status = 'IN_PROGRESS' AND started_at < now() - $1::interval
	ORDER BY started_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE integration.idempotency_key k
SET status = 'FAILED', error_code = $3, completed_at = now(),
    response_snapshot = format('{"status":"FAILED","errorCode":"%s"}', $3::text)
FROM orphans WHERE k.idempotency_key_id = orphans.idempotency_key_id
RETURNING extract(epoch FROM k.completed_at - k.started_at)::float8`

// EndOrphans ends requests that have been in progress for longer than after: the process
// that ran them is gone. A TX1 that runs all the same finds its key ended, and does
// nothing. dwells are how long each was in progress.
func (s *Store) EndOrphans(ctx context.Context, after time.Duration) (report lease.Report, dwells []time.Duration, err error) {
	rows, err := s.pool.Query(ctx, orphansSQL, after, watchdogBatch, TimedOut)
	if err != nil {
		return report, nil, postgres.Wrap("end orphans", err)
	}
	dwells, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (time.Duration, error) {
		var seconds float64
		err := row.Scan(&seconds)
		return time.Duration(seconds * float64(time.Second)), err
	})
	if err != nil {
		return report, nil, postgres.Wrap("end orphans", err)
	}
	n := len(dwells)
	return lease.Report{Claimed: n, Dead: n, More: n == watchdogBatch}, dwells, nil
}

// InProgress returns how many requests are in progress, and since when the oldest.
func (s *Store) InProgress(ctx context.Context) (n int, oldest time.Duration, err error) {
	var seconds float64
	err = s.pool.QueryRow(ctx, `
		SELECT count(*), coalesce(extract(epoch FROM now() - min(started_at)), 0)::float8
		FROM integration.idempotency_key WHERE status = 'IN_PROGRESS'`).Scan(&n, &seconds)
	return n, time.Duration(max(seconds, 0) * float64(time.Second)), postgres.Wrap("in progress", err)
}

// endFailed ends a request whose TX1 was rolled back, if it is still this attempt's.
func (s *Store) endFailed(ctx context.Context, keyID int64, attempt uuid.UUID, code string) error {
	_, err := s.pool.Exec(ctx, `
		UPDATE integration.idempotency_key
		SET status = 'FAILED', error_code = $3, completed_at = now(), response_snapshot = format('{"status":"FAILED","errorCode":"%s"}', $3::text)
		WHERE idempotency_key_id = $1 AND attempt = $2 AND status = 'IN_PROGRESS'`, keyID, attempt, code)
	return err
}

// Moved returns how many transfers were made from one time until before another, by the
// clocks of the processes that made them.
func (s *Store) Moved(ctx context.Context, from, until time.Time) (n int, err error) {
	err = s.pool.QueryRow(ctx, `SELECT count(*) FROM core.transfer WHERE transfer_id >= $1 AND transfer_id < $2`,
		id.Before(from), id.Before(until)).Scan(&n)
	return n, postgres.Wrap("count transfers", err)
}

// maxDue bounds how many transfers without entries LedgerDue counts.
const maxDue = 100_000

// LedgerDue returns how many transfers have no ledger entries yet, up to 100,000, and how
// long the oldest of them has waited.
func (s *Store) LedgerDue(ctx context.Context) (n int, oldest time.Duration, err error) {
	var seconds float64
	err = s.pool.QueryRow(ctx, `SELECT count(*), coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8
		FROM (SELECT created_at FROM core.ledger_due ORDER BY transfer_id LIMIT $1) due`, maxDue).Scan(&n, &seconds)
	return n, time.Duration(seconds * float64(time.Second)), postgres.Wrap("count transfers without entries", err)
}
