package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// SweepBatch bounds each DELETE of a Sweep, so that its transaction stays short.
const SweepBatch = 1000

// Delete is one statement of a Sweep. Its SQL deletes at most $1 rows; Args are $2
// and on.
type Delete struct {
	SQL  string
	Args []any
}

// Sweep runs each statement once and returns the number of deleted rows. more is true
// when one of them was full, so there is probably more to delete.
func Sweep(ctx context.Context, pool *pgxpool.Pool, deletes ...Delete) (deleted int, more bool, err error) {
	for _, d := range deletes {
		tag, err := pool.Exec(ctx, d.SQL, append([]any{SweepBatch}, d.Args...)...)
		if err != nil {
			return deleted, more, Wrap("cleanup", err)
		}
		deleted += int(tag.RowsAffected())
		more = more || tag.RowsAffected() == SweepBatch
	}
	return deleted, more, nil
}

// Now returns the database's time, which decides about ages.
func Now(ctx context.Context, pool *pgxpool.Pool) (now time.Time, err error) {
	err = pool.QueryRow(ctx, `SELECT now()`).Scan(&now)
	return now, Wrap("read the clock", err)
}
