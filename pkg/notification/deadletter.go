package notification

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Unreadable is a message that no notification could be made of, as it came.
type Unreadable struct {
	Data    []byte
	Headers map[string][]string
	EventID string
	Type    string
	Reason  error
}

// maxReasonBytes bounds the error text of a dead letter.
const maxReasonBytes = 1000

// DeadLetter keeps a message that can never be accepted, with its raw bytes and
// headers, for a person to look at.
func (s *Store) DeadLetter(ctx context.Context, u Unreadable) error {
	// A nil []byte would be NULL, and the table tells raw letters by it.
	data := append([]byte{}, u.Data...)
	headers, err := json.Marshal(storableHeaders(u.Headers))
	if err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, `
		INSERT INTO notification.notification_dlq (event_id, event_type, raw_message, raw_headers, error)
		VALUES ($1, $2, $3, $4::jsonb, $5)`,
		storable(u.EventID), storable(u.Type), data, string(headers), clip(storable(u.Reason.Error())))
	return postgres.Wrap("dead letter", err)
}

func clip(text string) string {
	if len(text) > maxReasonBytes {
		return storable(text[:maxReasonBytes])
	}
	return text
}

func isUnreadable(err error) bool { return errors.Is(err, event.ErrUnreadable) }
