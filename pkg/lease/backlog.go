package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// MaxBacklog bounds how many unfinished and how many FAILED rows Backlog counts.
const MaxBacklog = 100_000

// Waiting are the rows of one status.
type Waiting struct {
	Status string
	Rows   int
	Oldest time.Duration // since the oldest of them was created
}

// Backlog counts the rows of a leased table that are not done, by status. done is the
// column with the time at which a row was, NULL in others; both names are constants. It
// reads two partial indexes: of unfinished rows, and of FAILED ones.
func Backlog(ctx context.Context, pool *pgxpool.Pool, table, done string) ([]Waiting, error) {
	rows, err := pool.Query(ctx, fmt.Sprintf(`
		SELECT status, count(*), greatest(extract(epoch FROM now() - min(created_at)), 0)::float8
		FROM (
			(SELECT status, created_at FROM %[1]s WHERE finished_at IS NULL ORDER BY next_retry_at LIMIT %[3]d)
			UNION ALL
			(SELECT status, created_at FROM %[1]s WHERE finished_at IS NOT NULL AND %[2]s IS NULL ORDER BY finished_at LIMIT %[3]d)
		) waiting GROUP BY status`, table, done, MaxBacklog))
	if err != nil {
		return nil, postgres.Wrap("backlog", err)
	}
	waiting, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Waiting, err error) {
		var seconds float64
		err = row.Scan(&w.Status, &w.Rows, &seconds)
		w.Oldest = time.Duration(seconds * float64(time.Second))
		return w, err
	})
	return waiting, postgres.Wrap("backlog", err)
}
