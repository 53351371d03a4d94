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

// Consumer is the destination of published events.
type Consumer interface {
	// Missing returns those of ids that the consumer has neither processed nor set
	// aside.
	Missing(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error)
	// Caught reports whether the consumer has handled every message that is older than
	// age: then an event that it misses from that time is lost.
	Caught(ctx context.Context, age time.Duration) (bool, error)
}

// Reconciler republishes events that were PUBLISHED and never arrived: PUBLISHED means
// that the broker stored the event, and a broker can lose its store. It walks the outbox
// once, in the order of event ids, behind a watermark in the outbox's schema, and passes
// a row only when the consumer has its event.
type Reconciler struct {
	ReconcilerConfig
	age   time.Duration // of this step; see walk
	until uuid.UUID     // of this step: later rows are too young
	ahead *walk         // nil at the watermark
}

// ReconcilerConfig says which rows a reconciler checks, and which consumer must have got
// them. All fields but Where are required.
type ReconcilerConfig struct {
	Pool      *pgxpool.Pool
	Table     string // the outbox
	Where     string // as in RelayConfig
	Marks     string // table of watermarks
	Name      string // the consumer's, in Marks
	Publisher Publisher
	Consumer  Consumer
	// After is the age of rows to check, by their ids, which have their time from Postgres:
	// above the duration of transactions, and what the clocks of Postgres' servers, the
	// broker and this process differ by.
	After time.Duration
	Log   *slog.Logger
}

// everything is the Where of a reconciler of all rows.
const everything = "true"

// NewReconciler returns a reconciler.
func NewReconciler(c ReconcilerConfig) *Reconciler {
	if c.Where == "" {
		c.Where = everything
	}
	return &Reconciler{ReconcilerConfig: c}
}

// reconcileBatch bounds the rows of a step.
const reconcileBatch = 500

// walk is a reconciler's position beyond its watermark: it has republished everything
// missing up to from. A later walk, which starts at the watermark again, finds that all
// of it arrived.
type walk struct {
	from uuid.UUID
	age  time.Duration // age of messages that the consumer must have handled
}

// Step checks the next batch. In its report, Claimed counts the checked rows, Done those
// whose events arrived, Retried the republished ones, and Dead those that cannot be
// republished. It is not safe for concurrent use; several processes may reconcile at
// once, and at worst publish an event more than once.
func (r *Reconciler) Step(ctx context.Context) (lease.Report, error) {
	rows, err := r.next(ctx)
	if err != nil {
		r.ahead = nil
		return lease.Report{}, err
	}
	if len(rows) == 0 {
		atTheWatermark := r.ahead == nil
		if r.ahead = nil; atTheWatermark {
			err = r.passOthers(ctx)
		}
		return lease.Report{}, err
	}
	var published []uuid.UUID
	records := map[uuid.UUID]event.Record{}
	for _, row := range rows {
		if row.published {
			published = append(published, row.id)
			records[row.id] = row.record
		}
	}
	missing, err := r.Consumer.Missing(ctx, published)
	if err != nil {
		return lease.Report{}, err
	}
	report := lease.Report{Claimed: len(rows), Done: len(rows) - len(missing), More: len(rows) == reconcileBatch}
	last := rows[len(rows)-1].id
	if len(missing) > 0 {
		report.Retried, report.Dead, err = r.publishAgain(ctx, missing, records)
		if err != nil || report.Retried+report.Dead < len(missing) {
			r.ahead, report.More = nil, false
			return report, err
		}
	}
	if r.ahead == nil && report.Retried == 0 {
		if err := r.advance(ctx, last); err != nil || report.More {
			return report, err
		}
		return report, r.passOthers(ctx)
	}
	if r.ahead = nil; report.More {
		r.ahead = &walk{last, r.age}
	}
	return report, nil
}

// publishAgain returns how many events it republished, and how many can never be: a newer
// version may be unable to read an old event. It returns zero for both while the events
// may still be on their way.
func (r *Reconciler) publishAgain(ctx context.Context, missing []uuid.UUID, records map[uuid.UUID]event.Record) (sent, dead int, err error) {
	caught, err := r.Consumer.Caught(ctx, r.age)
	if err != nil || !caught {
		return 0, 0, err
	}
	var messages []event.Message
	for _, eventID := range missing {
		message, err := event.Encode(records[eventID])
		if err != nil {
			r.Log.ErrorContext(ctx, "event was lost and cannot be published again", "event_id", eventID, "error", err.Error())
			dead++
			continue
		}
		// The broker may still know the event's id although it lost the message.
		message.Dedup = uuid.NewString()
		messages = append(messages, message)
		r.Log.WarnContext(ctx, "event was lost after it was published; publishing it again", "event_id", eventID)
	}
	if len(messages) == 0 {
		return 0, dead, nil
	}
	// Record first: a crash in between costs a delay; in the other order it would
	// publish all of it twice.
	if err := r.noteRepublished(ctx); err != nil {
		return 0, dead, err
	}
	var away []error
	for i, failure := range r.Publisher.Publish(ctx, messages) {
		switch {
		case failure == nil:
			sent++
		case errors.Is(failure, ErrRefused):
			r.Log.ErrorContext(ctx, "event was lost and the broker refuses it", "event_id", messages[i].ID, "error", failure.Error())
			dead++
		default:
			away = append(away, failure)
		}
	}
	return sent, dead, errors.Join(away...)
}

type reconcileRow struct {
	id        uuid.UUID
	published bool
	record    event.Record
}

// next reads the rows behind the watermark, or behind the walk, that are old enough, up
// to the first unfinished one, which must not be passed.
func (r *Reconciler) next(ctx context.Context) ([]reconcileRow, error) {
	var now time.Time
	var from uuid.UUID
	var republished *time.Time
	var marked bool
	err := r.Pool.QueryRow(ctx, fmt.Sprintf(`
		SELECT now(), coalesce(m.up_to, '00000000-0000-0000-0000-000000000000'), m.republished_at, m.consumer IS NOT NULL
		FROM (SELECT) nothing LEFT JOIN %s m ON m.consumer = $1`, r.Marks), r.Name).Scan(&now, &from, &republished, &marked)
	if err == nil && !marked {
		// Cleanup uses the slowest mark, so a mark that never moved must exist, too.
		_, err = r.Pool.Exec(ctx, fmt.Sprintf(`
			INSERT INTO %s (consumer, up_to) VALUES ($1, '00000000-0000-0000-0000-000000000000') ON CONFLICT DO NOTHING`, r.Marks), r.Name)
	}
	if err != nil {
		return nil, postgres.Wrap("reconcile", err)
	}
	r.age, r.until = r.After, id.Before(now.Add(-r.After))
	if republished != nil {
		r.age = min(r.age, now.Sub(*republished))
	}
	if r.ahead != nil {
		from, r.age = r.ahead.from, r.ahead.age
	}
	result, err := r.Pool.Query(ctx, fmt.Sprintf(`
		SELECT event_id, status, event_type, aggregate_key, occurred_at, traceparent, payload
		FROM %s WHERE event_id > $1 AND event_id < $2 AND %s ORDER BY event_id LIMIT $3`, r.Table, r.Where),
		from, r.until, reconcileBatch)
	if err != nil {
		return nil, postgres.Wrap("reconcile", err)
	}
	defer result.Close()
	var rows []reconcileRow
	for result.Next() {
		var row reconcileRow
		var status string
		record := &row.record
		if err := result.Scan(&row.id, &status, &record.Type, &record.Key, &record.OccurredAt, &record.Traceparent, &record.Payload); err != nil {
			return nil, postgres.Wrap("reconcile", err)
		}
		if status != Published && status != Failed {
			return rows, nil
		}
		record.ID, row.published = row.id.String(), status == Published
		rows = append(rows, row)
	}
	return rows, postgres.Wrap("reconcile", result.Err())
}

// passOthers moves the watermark past rows of other reconcilers of the same outbox, when
// no rows of this one are left before them: cleanup removes rows that all have passed. It
// runs after next, and so finds a mark.
func (r *Reconciler) passOthers(ctx context.Context) error {
	if r.Where == everything {
		return nil
	}
	var last *uuid.UUID
	err := r.Pool.QueryRow(ctx, fmt.Sprintf(`
		SELECT event_id FROM %[1]s
		WHERE event_id > (SELECT up_to FROM %[2]s WHERE consumer = $1)
		  AND event_id < least($2, (SELECT event_id FROM %[1]s
			WHERE event_id > (SELECT up_to FROM %[2]s WHERE consumer = $1)
			  AND %[3]s ORDER BY event_id LIMIT 1))
		ORDER BY event_id DESC LIMIT 1`, r.Table, r.Marks, r.Where), r.Name, r.until).Scan(&last)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return postgres.Wrap("reconcile", err)
	}
	return r.advance(ctx, *last)
}

func (r *Reconciler) advance(ctx context.Context, to uuid.UUID) error {
	_, err := r.Pool.Exec(ctx, fmt.Sprintf(`
		INSERT INTO %[1]s AS m (consumer, up_to) VALUES ($1, $2)
		ON CONFLICT (consumer) DO UPDATE SET up_to = excluded.up_to, updated_at = now()
		WHERE m.up_to < excluded.up_to`, r.Marks), r.Name, to)
	return postgres.Wrap("reconcile", err)
}

func (r *Reconciler) noteRepublished(ctx context.Context) error {
	_, err := r.Pool.Exec(ctx, fmt.Sprintf(`
		INSERT INTO %[1]s AS m (consumer, up_to, republished_at) VALUES ($1, '00000000-0000-0000-0000-000000000000', now())
		ON CONFLICT (consumer) DO UPDATE SET republished_at = now()`, r.Marks), r.Name)
	return postgres.Wrap("reconcile", err)
}
