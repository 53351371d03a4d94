// Package deadletter keeps messages that can never be accepted, with their raw bytes and
// headers, for operators. Each domain has its own table.
package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Letter is a message that can never be accepted, as received.
type Letter struct {
	Data    []byte
	Headers map[string][]string
	EventID string // the message's own claim; may be anything
	Type    string
	Reason  error
}

// Limits of stored strings, in bytes; the raw message is stored whole, and the headers
// contain the id and the type as received.
const (
	// maxNameBytes bounds id and type: the id is in an index, whose rows hold 2,700
	// bytes, and each replaced byte (see postgres.Storable) takes three.
	maxNameBytes   = 255
	maxReasonBytes = 1000
	maxHeaderBytes = 64 << 10
)

// Put keeps a letter in table, which has the columns event_id, event_type,
// raw_message, raw_headers, raw_hash (unique) and error. A letter is stored
// once: a broker that missed the termination of a message redelivers it. Its error is
// fault.Unavailable when the database is away.
func Put(ctx context.Context, pool *pgxpool.Pool, table string, l Letter) error {
	// A nil []byte would be NULL, by which tables distinguish raw letters.
	data := append([]byte{}, l.Data...)
	headers, err := json.Marshal(storable(l.Headers))
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, fmt.Sprintf(`
		INSERT INTO %s (event_id, event_type, raw_message, raw_headers, raw_hash, error)
		VALUES ($1, $2, $3, $4::jsonb, $5, $6) ON CONFLICT (raw_hash) DO NOTHING`, table),
		postgres.Storable(l.EventID, maxNameBytes), postgres.Storable(l.Type, maxNameBytes), data, string(headers), l.hash(),
		postgres.Storable(l.Reason.Error(), maxReasonBytes))
	return postgres.Wrap("dead letter", err)
}

// hash identifies a message by id, type and content, because brokers change headers on
// redelivery.
func (l Letter) hash() []byte {
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(l.EventID), []byte(l.Type), l.Data} {
		_ = binary.Write(sum, binary.BigEndian, uint64(len(part))) // so that no part runs into the next
		_, _ = sum.Write(part)
	}
	return sum.Sum(nil)
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
