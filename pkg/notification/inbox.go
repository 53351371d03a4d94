package notification

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Inbox returns up to limit notifications of a user, newest first, and the
// cursor of the next page, "" on the last.
func (s *Store) Inbox(ctx context.Context, userID, cursor string, limit int) ([]Notification, string, error) {
	before := uuid.Max
	if cursor != "" {
		position, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil {
			return nil, "", ErrCursor
		}
		if before, err = uuid.FromBytes(position); err != nil {
			return nil, "", ErrCursor
		}
	}
	limit = min(max(limit, 1), MaxPage)
	rows, err := s.pool.Query(ctx, `
		SELECT notification_id, event_id::text, event_type, status, attempt_count, created_at, sent_at, read_at, payload
		FROM notification.notifications
		WHERE user_id = $1 AND notification_id < $2
		ORDER BY notification_id DESC
		LIMIT $3`, userID, before, limit+1)
	if err != nil {
		return nil, "", postgres.Wrap("read inbox", err)
	}
	var keys []uuid.UUID
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n Notification, err error) {
		var key uuid.UUID
		err = row.Scan(&key, &n.EventID, &n.EventType, &n.Status, &n.AttemptCount, &n.CreatedAt, &n.SentAt, &n.ReadAt, &n.Payload)
		n.ID, n.CreatedAt, n.SentAt, n.ReadAt = textID(key), n.CreatedAt.UTC(), utc(n.SentAt), utc(n.ReadAt)
		keys = append(keys, key)
		return n, err
	})
	if err != nil {
		return nil, "", postgres.Wrap("read inbox", err)
	}
	if len(list) <= limit {
		return list, "", nil
	}
	return list[:limit], base64.RawURLEncoding.EncodeToString(keys[limit-1][:]), nil
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
