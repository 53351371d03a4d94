package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Consumer is where published events must end up.
type Consumer interface {
	// Missing returns those of ids that the consumer has neither processed nor
	// put aside.
	Missing(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error)
	// Caught reports whether the consumer has dealt with every message that is older
	// than age: then what it misses of that time will not come by itself.
	Caught(ctx context.Context, age time.Duration) (bool, error)
}

// Reconciler publishes again what was PUBLISHED and never arrived: PUBLISHED
// means that the broker had it, and a broker can lose its store. It walks the
// outbox once, in the order of event ids, behind a watermark that it keeps in the
// outbox's schema, and passes a row only when the consumer has it.
type Reconciler struct {
	pool      *pgxpool.Pool
	table     string // the outbox
	marks     string // table of watermarks
	name      string // of the consumer
	publisher Publisher
	consumer  Consumer
	after     time.Duration
	log       *slog.Logger
}

// NewReconciler returns a reconciler of the rows of table that are older than
// after. after must exceed what clocks differ and transactions last.
func NewReconciler(pool *pgxpool.Pool, table, marks, name string, publisher Publisher, consumer Consumer, after time.Duration, log *slog.Logger) *Reconciler {
	return &Reconciler{pool, table, marks, name, publisher, consumer, after, log}
}

// reconcileBatch bounds what one step looks at.
const reconcileBatch = 500

// Step looks at the next batch. In its report, Claimed counts the rows that were
// looked at, Done those that have arrived, Retried those that were published
// again: they are looked at once more by a later step.
func (r *Reconciler) Step(ctx context.Context) (lease.Report, error) {
	rows, last, err := r.next(ctx)
	if err != nil || len(rows) == 0 {
		return lease.Report{}, err
	}
	var published []uuid.UUID
	byID := map[uuid.UUID]event.Record{}
	for _, row := range rows {
		if row.published {
			published = append(published, row.id)
			byID[row.id] = row.record
		}
	}
	missing, err := r.consumer.Missing(ctx, published)
	if err != nil {
		return lease.Report{}, err
	}
	report := lease.Report{Claimed: len(rows), Done: len(rows) - len(missing)}
	if len(missing) > 0 {
		sent, dead, err := r.publishAgain(ctx, missing, byID)
		report.Retried, report.Dead = sent, dead
		if err != nil || dead < len(missing) {
			return report, err
		}
	}
	report.More = len(rows) == reconcileBatch
	return report, r.advance(ctx, last)
}

// publishAgain returns how many events are on their way again, and how many can
// never be: what was published once may be unreadable to a newer version.
func (r *Reconciler) publishAgain(ctx context.Context, missing []uuid.UUID, records map[uuid.UUID]event.Record) (sent, dead int, err error) {
	caught, err := r.consumer.Caught(ctx, r.after)
	if err != nil || !caught {
		return 0, 0, err // they may be on their way
	}
	var messages []event.Message
	for _, eventID := range missing {
		message, err := event.Encode(records[eventID])
		if err != nil {
			r.log.ErrorContext(ctx, "event was lost and cannot be published again", "event_id", eventID, "error", err.Error())
			dead++
			continue
		}
		// The broker would answer that it knows the event's id, even when the message
		// is gone.
		message.Dedup = uuid.NewString()
		messages = append(messages, message)
		r.log.WarnContext(ctx, "event was lost after it was published; publishing it again", "event_id", eventID)
	}
	failures := r.publisher.Publish(ctx, messages)
	for _, failure := range failures {
		if failure == nil {
			sent++
		}
	}
	return sent, dead, errors.Join(failures...)
}

type reconcileRow struct {
	id        uuid.UUID
	published bool
	record    event.Record
}

// next reads the rows behind the watermark that are old enough, up to the first
// that is not finished: that one must not be passed.
func (r *Reconciler) next(ctx context.Context) (rows []reconcileRow, last uuid.UUID, err error) {
	var now time.Time
	var mark uuid.UUID
	err = r.pool.QueryRow(ctx, fmt.Sprintf(
		`SELECT now(), coalesce((SELECT up_to FROM %s WHERE consumer = $1), '00000000-0000-0000-0000-000000000000')`, r.marks), r.name).Scan(&now, &mark)
	if err != nil {
		return nil, last, postgres.Wrap("reconcile", err)
	}
	result, err := r.pool.Query(ctx, fmt.Sprintf(`
		SELECT event_id, status, event_type, aggregate_key, occurred_at, traceparent, payload
		FROM %s WHERE event_id > $1 AND event_id < $2 ORDER BY event_id LIMIT $3`, r.table),
		mark, id.Before(now.Add(-r.after)), reconcileBatch)
	if err != nil {
		return nil, last, postgres.Wrap("reconcile", err)
	}
	unfinished := false
	_, err = pgx.CollectRows(result, func(row pgx.CollectableRow) (none struct{}, err error) {
		var item reconcileRow
		var status string
		record := &item.record
		err = row.Scan(&item.id, &status, &record.Type, &record.Key, &record.OccurredAt, &record.Traceparent, &record.Payload)
		item.record.ID, item.published = item.id.String(), status == Published
		unfinished = unfinished || status != Published && status != Failed
		if !unfinished {
			rows, last = append(rows, item), item.id
		}
		return none, err
	})
	return rows, last, postgres.Wrap("reconcile", err)
}

func (r *Reconciler) advance(ctx context.Context, to uuid.UUID) error {
	_, err := r.pool.Exec(ctx, fmt.Sprintf(`
		INSERT INTO %[1]s AS m (consumer, up_to) VALUES ($1, $2)
		ON CONFLICT (consumer) DO UPDATE SET up_to = excluded.up_to, updated_at = now()
		WHERE m.up_to < excluded.up_to`, r.marks), r.name, to)
	return postgres.Wrap("reconcile", err)
}
