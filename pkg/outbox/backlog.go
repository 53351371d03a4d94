package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// MaxBacklog bounds the count of Backlog.
const MaxBacklog = 100_000

// Backlog returns the number of unfinished rows of an outbox, up to MaxBacklog, and the
// age of the oldest.
func Backlog(ctx context.Context, pool *pgxpool.Pool, table string) (n int, oldest time.Duration, err error) {
	var seconds float64
	err = pool.QueryRow(ctx, fmt.Sprintf(`
		SELECT count(*), coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8
		FROM (SELECT created_at FROM %s WHERE finished_at IS NULL ORDER BY next_retry_at LIMIT %d) waiting`, table, MaxBacklog)).Scan(&n, &seconds)
	return n, time.Duration(max(seconds, 0) * float64(time.Second)), postgres.Wrap("backlog", err)
}
