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

// change runs sql with the user as $1 and args as the others, while no other call changes
// that user. known is false, and sql must then change nothing, if there is no such user.
// A batch is one transaction in one round trip, and its second statement sees everything
// that was committed while the first waited.
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
