// Package deadletter keeps messages that can never be accepted, with their raw bytes
// and headers, for a person to look at. Each domain has a table of them.
package deadletter

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Letter is a message that can never be accepted, as it came.
type Letter struct {
	Data    []byte
	Headers map[string][]string
	EventID string // as it says itself; may be anything
	Type    string
	Reason  error
}

// What is kept of texts, in bytes; the raw message is kept whole.
const (
	maxReasonBytes = 1000
	maxHeaderBytes = 64 << 10
)

// Put keeps a letter in table, which has the columns event_id, event_type,
// raw_message, raw_headers and error. Its error is fault.Unavailable when the
// database is away.
func Put(ctx context.Context, pool *pgxpool.Pool, table string, l Letter) error {
	// A nil []byte would be NULL, and tables tell raw letters by it.
	data := append([]byte{}, l.Data...)
	headers, err := json.Marshal(storable(l.Headers))
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, fmt.Sprintf(`
		INSERT INTO %s (event_id, event_type, raw_message, raw_headers, error)
		VALUES ($1, $2, $3, $4::jsonb, $5)`, table),
		postgres.Storable(l.EventID, maxHeaderBytes), postgres.Storable(l.Type, maxHeaderBytes), data, string(headers),
		postgres.Storable(l.Reason.Error(), maxReasonBytes))
	return postgres.Wrap("dead letter", err)
}

func storable(headers map[string][]string) map[string][]string {
	out := make(map[string][]string, len(headers))
	for name, values := range headers {
		name = postgres.Storable(name, maxHeaderBytes)
		for _, value := range values {
			out[name] = append(out[name], postgres.Storable(value, maxHeaderBytes))
		}
	}
	return out
}
