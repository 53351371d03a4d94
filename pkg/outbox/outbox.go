// Package outbox publishes events from a database without losing or inventing one (the
// transactional outbox pattern): a domain inserts its event in the transaction that
// changes its state, and a relay publishes committed rows afterwards, under a lease.
// After a crash between publishing and finishing, an event is published twice; consumers
// deduplicate by its id.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/spans"
)

// Statuses of an outbox row. See docs/architecture.md for the diagram.
const (
	Pending   = lease.Pending
	InFlight  = "IN_FLIGHT"
	Published = "PUBLISHED"
	Failed    = lease.Failed
)

// Finished describes an outbox table to operators, who requeue its FAILED rows.
func Finished(pool *pgxpool.Pool, table string) lease.Finished {
	return lease.Finished{
		Pool: pool, Name: table, ID: "event_id", Done: "published_at", Owner: "aggregate_key",
		Format: uuid.UUID.String, Parse: uuid.Parse,
	}
}

// Errors by which a Publisher distinguishes the broker's faults from the event's.
var (
	// ErrBroker: the broker is away or full. The event is returned and uses up no
	// attempt.
	ErrBroker = errors.New("the broker cannot take events now")
	// ErrRefused: the broker will never take this event. It becomes FAILED.
	ErrRefused = errors.New("the broker refuses this event")
)

// Publisher publishes events to a broker.
type Publisher interface {
	// Ready returns nil when the broker is connected. The relay asks before it claims.
	Ready(context.Context) error
	// Publish waits until the broker has acknowledged every message or ctx ends.
	// It returns one error for each message, nil if it is stored; a message whose error
	// wraps neither ErrBroker nor ErrRefused is retried, which counts as an attempt.
	Publish(context.Context, []event.Message) []error
}

// AtOnce is how many steps of a relay should run at once while there is more: one claims
// or finishes while the other waits for the broker.
const AtOnce = 2

// Relay publishes the rows of one outbox table. Its steps may run at once.
type Relay struct {
	queue     *lease.Queue[event.Record]
	publisher Publisher
	published func()
	log       *slog.Logger
}

// RelayConfig says which rows a relay publishes, and where. All fields but Where are
// required.
type RelayConfig struct {
	Pool  *pgxpool.Pool
	Table string // with the columns of entitlement.outbox_events
	// Where is an SQL condition, a constant, that selects this relay's rows; "" for all.
	// Each subject should have its own relay, so that a full stream delays only its own
	// events.
	Where     string
	Policy    lease.Policy
	Worker    string // shown in locked_by
	Publisher Publisher
	// Published is called as soon as the broker has events, before their rows are
	// finished; it must not block.
	Published func()
	Log       *slog.Logger
}

// NewRelay returns a relay.
func NewRelay(c RelayConfig) *Relay {
	queue := lease.New(c.Pool, lease.Table{
		Name: c.Table, ID: "event_id", Where: c.Where,
		Columns:  "event_type, aggregate_key, occurred_at, traceparent, payload",
		InFlight: InFlight, Done: Published,
	}, c.Policy, c.Worker, func(r *event.Record) []any {
		return []any{&r.Type, &r.Key, &r.OccurredAt, &r.Traceparent, &r.Payload}
	})
	return &Relay{queue: queue, publisher: c.Publisher, published: c.Published, log: c.Log}
}

// Step claims one batch, publishes it and finishes it. While the broker is away
// it claims nothing and returns a fault.Unavailable.
func (r *Relay) Step(ctx context.Context) (lease.Report, error) {
	if err := r.publisher.Ready(ctx); err != nil {
		return lease.Report{}, fault.Unreachable("The event broker", err)
	}
	claim, err := r.queue.Claim(ctx)
	if err != nil || len(claim.Rows) == 0 {
		return lease.Report{}, err
	}
	b := encode(claim)
	ctx, traced := Trace(ctx, b.messages)
	defer traced.End()
	publishing, cancel := context.WithDeadline(ctx, claim.Deadline)
	results := r.publisher.Publish(publishing, b.messages)
	cancel()
	b.sort(results)
	for i, err := range results {
		traced.Ended(i, err)
	}
	if len(b.Done) > 0 {
		r.published()
	}
	for _, f := range append(b.Dead, b.Retry...) {
		r.log.WarnContext(ctx, "event not published", "event_id", f.ID, "error", f.Reason.Error())
	}
	report, err := claim.Settle(ctx, b.Outcome)
	if len(b.Returned) > 0 {
		r.log.WarnContext(ctx, "broker away, events returned", "count", len(b.Returned), "error", b.Returned[0].Reason.Error())
		// Another claim could not be published either.
		report.More = false
	}
	return report, err
}

// Trace starts the spans of publishing messages. also is empty, or has for each message
// the traceparent of a second request that caused it, whose trace gets a span, too.
func Trace(ctx context.Context, messages []event.Message, also ...string) (context.Context, *spans.Batch) {
	about := spans.About{Operation: "publish", Kind: trace.SpanKindProducer, Messages: len(messages)}
	if len(messages) > 0 {
		about.Of = messages[0].Subject
	}
	return spans.Start(ctx, about, len(messages)+len(also), func(i int) (id, traceparent string) {
		if n := i - len(messages); n >= 0 {
			return messages[n].ID, also[n]
		}
		return messages[i].ID, messages[i].Traceparent
	})
}

// batch is the messages of a claim, and the outcome of its rows.
type batch struct {
	lease.Outcome
	ids      []uuid.UUID // of messages, same order
	messages []event.Message
}

func encode(claim *lease.Claim[event.Record]) *batch {
	b := &batch{}
	for _, row := range claim.Rows {
		if row.Exhausted {
			b.Dead = append(b.Dead, lease.Failure{ID: row.ID, Reason: lease.ErrExhausted})
			continue
		}
		record := row.Row
		record.ID = row.ID.String()
		message, err := event.Encode(record)
		if err != nil {
			b.Dead = append(b.Dead, lease.Failure{ID: row.ID, Reason: err})
			continue
		}
		b.ids = append(b.ids, row.ID)
		b.messages = append(b.messages, message)
	}
	return b
}

func (b *batch) sort(results []error) {
	if len(results) != len(b.ids) {
		panic(fmt.Sprintf("outbox: publisher answered %d of %d messages", len(results), len(b.ids)))
	}
	for i, id := range b.ids {
		failure := lease.Failure{ID: id, Reason: results[i]}
		switch {
		case results[i] == nil:
			b.Done = append(b.Done, id)
		case errors.Is(results[i], ErrBroker):
			b.Returned = append(b.Returned, failure)
		case errors.Is(results[i], ErrRefused):
			b.Dead = append(b.Dead, failure)
		default:
			b.Retry = append(b.Retry, failure)
		}
	}
}
