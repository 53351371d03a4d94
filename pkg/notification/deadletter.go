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

// What a dead letter keeps of texts; its raw message is kept whole.
const (
	maxReasonBytes = 1000
	maxHeaderBytes = 64 << 10
)

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
		postgres.Storable(u.EventID, maxHeaderBytes), postgres.Storable(u.Type, maxHeaderBytes), data, string(headers),
		postgres.Storable(u.Reason.Error(), maxReasonBytes))
	return postgres.Wrap("dead letter", err)
}

func storableHeaders(headers map[string][]string) map[string][]string {
	out := make(map[string][]string, len(headers))
	for name, values := range headers {
		name = postgres.Storable(name, maxHeaderBytes)
		for _, value := range values {
			out[name] = append(out[name], postgres.Storable(value, maxHeaderBytes))
		}
	}
	return out
}

func isUnreadable(err error) bool { return errors.Is(err, event.ErrUnreadable) }
