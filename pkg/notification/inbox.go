package notification

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/cursor"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Inbox returns up to limit notifications of a user, newest first, and the
// cursor of the next page, "" on the last.
func (s *Store) Inbox(ctx context.Context, userID, from string, limit int) ([]Notification, string, error) {
	before, err := cursor.ReadID(from, uuid.Max)
	if err != nil {
		return nil, "", err
	}
	limit = cursor.Limit(limit)
	rows, err := s.pool.Query(ctx, `
		SELECT `+columns+`
		FROM notification.notifications
		WHERE user_id = $1 AND notification_id < $2
		ORDER BY notification_id DESC
		LIMIT $3`, userID, before, limit+1)
	if err != nil {
		return nil, "", postgres.Wrap("read inbox", err)
	}
	var keys []uuid.UUID
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Notification, error) {
		n, key, err := scan(row)
		keys = append(keys, key)
		return n, err
	})
	if err != nil {
		return nil, "", postgres.Wrap("read inbox", err)
	}
	page, next := cursor.Page(list, limit, func(last int) []byte { return cursor.ID(keys[last]) })
	return page, next, nil
}
