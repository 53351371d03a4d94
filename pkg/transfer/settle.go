package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/deadletter"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// OutboxTable is where TX1 and Settle put events.
const OutboxTable = "integration.outbox_events"

// The outbox holds events of two subjects, each with a consumer of its own. These are
// SQL conditions on its rows; a type that no version knows counts as completed.
const (
	CompletedEvents = `event_type <> 'TransferSettled'`
	SettledEvents   = `event_type = 'TransferSettled'`
)

// Consumer is the name under which transfers are settled.
const Consumer = "settle"

// ReconciledTable holds up to which event each consumer is known to have them all.
const ReconciledTable = "integration.outbox_reconciled"

// Locks are taken in the order of event ids. An event that was processed before changes
// nothing; the event for notifications is written in the transaction that remembers it.
// Its id is as in move_money.sql, of the time by Postgres' clock.
const settleSQL = `
WITH input AS (
	SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::text[])
		AS i(event_id, aggregate_key, payload, occurred_at, traceparent)
), fresh AS (
	INSERT INTO integration.processed_events (event_id)
	SELECT event_id FROM input ORDER BY event_id
	ON CONFLICT DO NOTHING
	RETURNING event_id
), written AS (
	INSERT INTO integration.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, traceparent)
	SELECT id, aggregate_key, 'TransferSettled', payload::jsonb || jsonb_build_object('event_id', id, 'event_type', 'TransferSettled'), occurred_at, traceparent
	FROM (SELECT *, (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '-7' || substr(gen_random_uuid()::text, 16))::uuid AS id FROM input JOIN fresh USING (event_id)) f
	RETURNING 1
)
SELECT count(*) FROM written`

// Settle deals with TransferCompleted events, each once, however often it comes,
// and returns how many were new. An error for which Poison is true means that one
// of them can never be dealt with.
func (s *Store) Settle(ctx context.Context, records []event.Record) (settled int, err error) {
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b event.Record) int { return strings.Compare(a.ID, b.ID) })
	records = slices.CompactFunc(records, func(a, b event.Record) bool { return a.ID == b.ID })
	var ids []uuid.UUID
	var keys, payloads, traces []string
	var times []time.Time
	for _, r := range records {
		eventID, err := uuid.Parse(r.ID)
		if err != nil || !json.Valid(r.Payload) {
			return 0, fmt.Errorf("%w: event %q", event.ErrUnreadable, r.ID)
		}
		ids = append(ids, eventID)
		keys, payloads, traces = append(keys, r.Key), append(payloads, string(r.Payload)), append(traces, r.Traceparent)
		times = append(times, r.OccurredAt)
	}
	err = postgres.Retry(ctx, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, settleSQL, ids, keys, payloads, times, traces).Scan(&settled)
	})
	return settled, postgres.Wrap("settle", err)
}

// AcceptAll is Settle, in the form that consumers of events call.
func (s *Store) AcceptAll(ctx context.Context, records []event.Record) error {
	_, err := s.Settle(ctx, records)
	return err
}

// Poison reports whether an error of Settle is the fault of an event itself, so
// that trying again cannot help.
func (s *Store) Poison(err error) bool {
	return postgres.BadData(err) || errors.Is(err, event.ErrUnreadable)
}

// DeadLetter keeps a message that can never be settled.
func (s *Store) DeadLetter(ctx context.Context, l deadletter.Letter) error {
	return deadletter.Put(ctx, s.pool, "integration.settle_dlq", l)
}

// Letters are the messages that could not be settled.
func (s *Store) Letters() deadletter.Box {
	return deadletter.Box{Pool: s.pool, Table: "integration.settle_dlq", Where: "true"}
}

// Missing returns those of ids of which nothing is known here: neither settled nor
// put aside.
func (s *Store) Missing(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT i.id FROM unnest($1::uuid[]) AS i(id)
		WHERE NOT EXISTS (SELECT FROM integration.processed_events p WHERE p.event_id = i.id)
		  AND NOT EXISTS (SELECT FROM integration.settle_dlq d WHERE d.event_id = i.id::text)`, ids)
	if err != nil {
		return nil, postgres.Wrap("look for missing events", err)
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	return missing, postgres.Wrap("look for missing events", err)
}
