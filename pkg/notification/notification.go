// Package notification notifies users of events, once per event and recipient. One
// statement accepts an event and records that it was accepted, so a message may be
// delivered any number of times. Sending happens later, under a lease, with retries, and
// ends SENT, or FAILED with a dead letter.
package notification

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/lease"
)

// Statuses of a notification; see docs/architecture.md for the diagram.
const (
	Pending    = lease.Pending
	Processing = "PROCESSING"
	Sent       = "SENT"
	Failed     = lease.Failed
)

// Notification is one event's notification to one recipient.
type Notification struct {
	ID           string          `json:"notification_id" doc:"Stable: receivers deduplicate by it." example:"n_01h455vb4pex5vsknk084sn02q"`
	EventID      string          `json:"event_id" format:"uuid" doc:"The event that caused it."`
	EventType    string          `json:"event_type" doc:"What happened." example:"EntitlementGranted"`
	Status       string          `json:"status" enum:"PENDING,PROCESSING,SENT,FAILED" doc:"Its state of delivery."`
	AttemptCount int             `json:"attempt_count" doc:"Number of attempts to send it." example:"1"`
	CreatedAt    time.Time       `json:"created_at" doc:"When the event was accepted."`
	SentAt       *time.Time      `json:"sent_at" doc:"When it was sent; null until then."`
	ReadAt       *time.Time      `json:"read_at" doc:"When the recipient read it; null until then."`
	Payload      json.RawMessage `json:"payload" doc:"The event's fields." example:"{\"event_type\":\"EntitlementGranted\",\"user_id\":\"u_123\",\"stock_keeping_unit\":\"item1\",\"version\":1}"`
}

// Table has the notifications.
const Table = "notification.notifications"

// Consumer is the durable name under which this domain consumes events.
const Consumer = "notify"

// ErrNotFound is also the error for another user's notification.
var ErrNotFound = fault.New(fault.NotFound, "notification_not_found", "This user has no such notification, or it was deleted; list the inbox to see the others.")

// Store reads and writes notifications.
type Store struct {
	pool *pgxpool.Pool
}

// NewStore returns a store on pool.
func NewStore(pool *pgxpool.Pool) *Store { return &Store{pool: pool} }

// columns are the columns that scan reads.
const columns = `notification_id, event_id::text, event_type, status, attempt_count, created_at, sent_at, read_at, payload`

// scan reads columns, and further ones into more.
func scan(row pgx.CollectableRow, more ...any) (n Notification, key uuid.UUID, err error) {
	err = row.Scan(append([]any{&key, &n.EventID, &n.EventType, &n.Status, &n.AttemptCount, &n.CreatedAt, &n.SentAt, &n.ReadAt, &n.Payload}, more...)...)
	n.ID, n.CreatedAt, n.SentAt, n.ReadAt = textID(key), n.CreatedAt.UTC(), utc(n.SentAt), utc(n.ReadAt)
	return n, key, err
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// parseID parses a caller's id. Its error is ErrNotFound.
func parseID(text string) (uuid.UUID, error) {
	key, err := id.Parse(id.Notification, text)
	if err != nil {
		return uuid.Nil, ErrNotFound
	}
	return key, nil
}

func textID(u uuid.UUID) string { return id.Text(id.Notification, u) }
