package notification

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Missing returns those of ids that are unknown here: neither accepted nor kept as a
// dead letter.
func (s *Store) Missing(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT i.id FROM unnest($1::uuid[]) AS i(id)
		WHERE NOT EXISTS (SELECT FROM notification.processed_events p WHERE p.event_id = i.id)
		  AND NOT EXISTS (SELECT FROM notification.notification_dlq d WHERE d.event_id = i.id::text)`, ids)
	if err != nil {
		return nil, postgres.Wrap("look for missing events", err)
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	return missing, postgres.Wrap("look for missing events", err)
}
