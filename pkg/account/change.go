package account

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Changes of one user take turns: without the lock, two that replace the roles
// could leave some of each, and two that count the identities one too many.
const lockSQL = `SELECT FROM account.users WHERE user_id = $1 FOR NO KEY UPDATE`

// change runs sql, whose $1 is the user and whose others are args, while nobody
// else changes that user. known is false, and sql must then do nothing, when there
// is no such user. A batch is one transaction in one round trip, and its second
// statement sees what was committed while the first waited.
func (s *Store) change(ctx context.Context, user uuid.UUID, sql string, args ...any) (known bool, err error) {
	err = postgres.Retry(ctx, func(ctx context.Context) error {
		batch := &pgx.Batch{}
		batch.Queue(lockSQL, user).Exec(func(tag pgconn.CommandTag) error {
			known = tag.RowsAffected() == 1
			return nil
		})
		batch.Queue(sql, append([]any{user}, args...)...)
		return s.pool.SendBatch(ctx, batch).Close()
	})
	return known, err
}
