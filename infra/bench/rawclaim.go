package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const rawClaimSQL = `
WITH due AS MATERIALIZED (
	SELECT event_id FROM entitlement.outbox_events
	WHERE finished_at IS NULL AND next_retry_at <= now() AND (status = 'PENDING' OR lease_until <= now())
	ORDER BY next_retry_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE entitlement.outbox_events t
SET status = 'IN_FLIGHT', claim_token = $2, locked_by = 'raw', locked_at = now(), lease_until = now() + interval '30 s',
    attempt_count = attempt_count + 1
FROM due WHERE t.event_id = due.event_id
RETURNING t.event_id, event_type, aggregate_key, occurred_at, traceparent, payload`

const rawFinishSQL = `
UPDATE entitlement.outbox_events
SET status = 'PUBLISHED', finished_at = now(), claim_token = NULL, locked_by = NULL, locked_at = NULL, lease_until = NULL
WHERE event_id = ANY($1) AND claim_token = $2 AND status = 'IN_FLIGHT'`

// rawClaimAndFinish claims batches and finishes them until none is left. It reads the
// rows that a relay needs, and does nothing with them.
func rawClaimAndFinish(ctx context.Context, pool *pgxpool.Pool, batch int) (done int, err error) {
	for {
		token := [16]byte(uuid.New()) // which pgx encodes much faster than a uuid.UUID
		rows, err := pool.Query(ctx, rawClaimSQL, batch, token)
		if err != nil {
			return done, err
		}
		ids, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id [16]byte, err error) {
			return [16]byte(row.RawValues()[0]), nil
		})
		if err != nil || len(ids) == 0 {
			return done, err
		}
		tag, err := pool.Exec(ctx, rawFinishSQL, ids, token)
		if err != nil {
			return done, err
		}
		if int(tag.RowsAffected()) != len(ids) {
			return done, fmt.Errorf("finished %d of %d", tag.RowsAffected(), len(ids))
		}
		done += len(ids)
	}
}
