// Package entitlement is the source of truth for what users own. A grant or revoke changes
// the entitlement, stores the answer under its idempotency key, writes the audit row and
// appends the event to the outbox: all of it happens, or nothing. Those that wait at the
// same moment share one SQL statement and its commit.
package entitlement

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/groupcommit"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
)

// Status of an entitlement. Only grant and revoke change it.
type Status string

// The statuses; see docs/architecture.md for the diagram.
const (
	Active  Status = "ACTIVE"
	Revoked Status = "REVOKED"
)

// OutboxTable is where the events of this domain wait for the relay.
const OutboxTable = "entitlement.outbox_events"

// ReconciledTable has the watermarks of that outbox's reconciliation.
const ReconciledTable = "entitlement.outbox_reconciled"

// Entitlement is one user's right to one item.
type Entitlement struct {
	StockKeepingUnit string    `json:"stock_keeping_unit" doc:"The item." example:"item1"`
	Status           Status    `json:"status" enum:"ACTIVE,REVOKED" doc:"Whether the user owns it now."`
	Version          int64     `json:"version" doc:"Grows by one with every change." example:"12"`
	UpdatedAt        time.Time `json:"updated_at" doc:"When it last changed." example:"2026-01-08T07:10:00.000000Z"`
}

// Changed is the answer to a grant or revoke; change.sql and change_one.sql write it.
type Changed struct {
	UserID string `json:"user_id" doc:"The owner." example:"u_123"`
	Entitlement
}

// Change is the content of a grant or revoke, and the data of a purchase event.
// All fields are strings of 1 to 128 printable characters that the caller chose.
type Change struct {
	UserID           string `json:"user_id" minLength:"1" maxLength:"128" format:"printable" doc:"Whose entitlement changes." example:"u_123"`
	StockKeepingUnit string `json:"stock_keeping_unit" minLength:"1" maxLength:"128" format:"printable" doc:"What is granted or revoked." example:"item1"`
	Reason           string `json:"reason" minLength:"1" maxLength:"128" format:"printable" doc:"Why; the event's source." example:"purchase"`
	PurchaseID       string `json:"purchase_id" minLength:"1" maxLength:"128" format:"printable" doc:"The purchase that caused it; the event's source_id." example:"p_456"`
}

// Write is a Change with its key, its caller and its conditions.
type Write struct {
	Key idempotency.Key
	// IfMatch is the required version of the entitlement, 0 for any.
	IfMatch int64
	// Purchase marks a change by a purchase event. Such events may come in any order: a
	// purchase whose refund is known ends REVOKED.
	Purchase    bool
	Traceparent string // W3C trace context, for the event; may be empty
}

// Errors of this domain.
var (
	ErrVersion = fault.New(fault.Precondition, "version_mismatch",
		"The entitlement's version is not the one in If-Match; read it again and decide anew.")
	ErrNotFound = fault.New(fault.NotFound, "entitlement_not_found", "There is no such entitlement.")
)

// Store reads and writes entitlements.
type Store struct {
	pool      *pgxpool.Pool
	retention time.Duration
	writes    groupcommit.Queue[write, answer]
}

// NewStore returns a store that keeps idempotency keys for retention.
func NewStore(pool *pgxpool.Pool, retention time.Duration) *Store {
	s := &Store{pool: pool, retention: retention}
	s.writes.Commit, s.writes.Keys = s.commit, write.keys
	return s
}
