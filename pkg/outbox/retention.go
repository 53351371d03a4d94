package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Retention is how long finished rows of an outbox are kept.
type Retention struct {
	// Published is how long PUBLISHED rows are kept, and in any case until reconcilers
	// have passed them: without the row a loss at the broker would not be noticed.
	Published time.Duration
	// Unreconciled is how long PUBLISHED rows that no reconciler has passed are kept. It
	// must be below the consumers' memory: an event that they have forgotten could be
	// republished and take effect twice.
	Unreconciled time.Duration
	// Failed is how long FAILED rows are kept, 0 for ever.
	Failed time.Duration
}

// passed is the event up to which all reconcilers of an outbox are; NULL before the first.
const passed = `(SELECT up_to FROM %[2]s ORDER BY up_to LIMIT 1)`

// Deletes returns the statements of a postgres.Sweep of table at the time now. marks is
// the reconcilers' table. Each statement reads no more rows than it may delete: first by
// its index, and then by ctid, which does not change while a row is locked.
func (r Retention) Deletes(table, marks string, now time.Time) []postgres.Delete {
	deletes := []postgres.Delete{{
		SQL: fmt.Sprintf(`
		DELETE FROM %[1]s WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM (
				SELECT ctid, event_id, published_at FROM %[1]s
				WHERE published_at <= $2 ORDER BY published_at LIMIT $1 FOR UPDATE SKIP LOCKED
			) old WHERE event_id <= `+passed+` OR published_at <= $3))`, table, marks),
		Args: []any{now.Add(-r.Published), now.Add(-max(r.Unreconciled, r.Published))},
	}}
	if r.Failed > 0 {
		deletes = append(deletes, postgres.Delete{
			SQL: fmt.Sprintf(`
			DELETE FROM %[1]s WHERE ctid = ANY (ARRAY(
				SELECT ctid FROM %[1]s
				WHERE finished_at IS NOT NULL AND published_at IS NULL AND finished_at <= $2
				ORDER BY finished_at LIMIT $1 FOR UPDATE SKIP LOCKED))`, table),
			Args: []any{now.Add(-r.Failed)},
		})
	}
	return deletes
}

// Waiting returns how many PUBLISHED rows are older than r.Published and kept only
// because no reconciler has passed them, up to postgres.SweepBatch.
func (r Retention) Waiting(ctx context.Context, pool *pgxpool.Pool, table, marks string) (n int, err error) {
	err = pool.QueryRow(ctx, fmt.Sprintf(`
		SELECT count(*) FROM (
			SELECT event_id FROM %[1]s WHERE published_at <= now() - $2::interval ORDER BY published_at LIMIT $1
		) old WHERE (event_id <= `+passed+`) IS NOT TRUE`, table, marks), postgres.SweepBatch, r.Published).Scan(&n)
	return n, postgres.Wrap("unreconciled events", err)
}
