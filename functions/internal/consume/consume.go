// Package consume is shared by the functions that accept events from a broker: a batch is
// accepted in one statement, and a message that can never be accepted becomes a dead
// letter alone.
package consume

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/miniserversystem/miniserver/pkg/deadletter"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/pkg/spans"
)

const (
	// againAfter is the delay before a message that could not be stored is redelivered.
	againAfter = 2 * time.Second
	// maxFailures bounds the statements of one step that fail without saying that an
	// event is at fault. Isolating one event in the largest batch takes ten.
	maxFailures = 16
	// atOnce is how many steps run at once while there is more: one fetches and
	// acknowledges while another's statement runs.
	atOnce = 2
)

// Store is the domain that accepts the events.
type Store interface {
	// AcceptAll accepts all of the events, or none, and each once however often it is
	// delivered.
	AcceptAll(context.Context, []event.Record) error
	// Poison reports whether an error of AcceptAll is the fault of an event, so that
	// trying again cannot help.
	Poison(error) bool
	// DeadLetter keeps a message that can never be accepted.
	DeadLetter(context.Context, deadletter.Letter) error
}

// Consumer takes messages from a broker, for several callers at once.
type Consumer interface {
	// Fetch returns up to limit messages that are available now; an empty result means
	// that none is left. Its error is fault.Unavailable.
	Fetch(ctx context.Context, limit int) ([]event.Delivery, error)
}

// Consumption is a store that consumes events.
type Consumption struct {
	env   *fn.Env
	store Store
	wake  func() // called when something was accepted

	redelivered metric.Int64Counter
}

// New returns a consumption. It wakes the function next after it accepted something.
func New(e *fn.Env, store Store, next string) (*Consumption, error) {
	meter, err := e.Meter("consumer")
	if err != nil {
		return nil, err
	}
	redelivered, err := meter.Int64Counter("consumer.redelivered", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that came not for the first time, by subject."))
	return &Consumption{e, store, e.Waker(next), redelivered}, err
}

// Source is the consumption of one consumer's messages.
func (c *Consumption) Source(name string, consumer Consumer) tick.Source {
	return tick.Source{
		Name: name, Step: func(ctx context.Context) (lease.Report, error) { return c.step(ctx, consumer) }, AtOnce: atOnce,
	}
}

// step accepts one batch. Messages are acknowledged only after the commit, so they are
// redelivered after a crash, and AcceptAll recognizes them.
func (c *Consumption) step(ctx context.Context, consumer Consumer) (lease.Report, error) {
	deliveries, err := consumer.Fetch(ctx, c.env.Settings.LeaseBatch)
	if err != nil || len(deliveries) == 0 {
		return lease.Report{}, err
	}
	ctx, traced := spans.Start(ctx, spans.About{Operation: "accept", Of: deliveries[0].Message.Subject, Kind: trace.SpanKindConsumer},
		len(deliveries), func(i int) (id, traceparent string) {
			return deliveries[i].Message.ID, deliveries[i].Message.Traceparent
		})
	defer traced.End()
	// Only an empty Fetch says that nothing is left.
	b := &batch{Consumption: c, traced: traced, report: lease.Report{Claimed: len(deliveries), More: true}}
	err = errors.Join(b.accept(ctx, b.decode(ctx, deliveries)), b.sortOut(ctx))
	if b.report.Done > 0 {
		c.wake()
	}
	return b.report, err
}

// batch holds the outcomes of the messages of one step.
type batch struct {
	*Consumption
	traced   *spans.Batch
	report   lease.Report
	bad      []item // to become dead letters
	alone    []item // failed alone, for a reason that may pass
	failures int    // statements that failed for such a reason
	last     error  // of the last of them
}

// item is a message and the event in it, or why it cannot be accepted.
type item struct {
	n        int // its place among the deliveries
	delivery event.Delivery
	record   event.Record
	err      error
}

func (i item) failed(err error) item {
	i.err = err
	return i
}

// decode returns the events that can be read.
func (b *batch) decode(ctx context.Context, deliveries []event.Delivery) (readable []item) {
	for n, d := range deliveries {
		if d.Delivered > 1 {
			b.redelivered.Add(ctx, 1, metric.WithAttributes(attribute.String("subject", d.Message.Subject)))
		}
		record, err := event.Decode(d.Message)
		if err != nil {
			b.bad = append(b.bad, item{n: n, delivery: d, err: err})
			continue
		}
		readable = append(readable, item{n: n, delivery: d, record: record})
	}
	return readable
}

// accept stores items in one statement. A batch that fails because of an event is halved
// until that event is alone. A batch that holds a redelivered message is halved, too,
// whatever the error: that message may be the cause.
func (b *batch) accept(ctx context.Context, items []item) error {
	if len(items) == 0 {
		return nil
	}
	if b.failures >= maxFailures {
		return b.giveBack(items)
	}
	records := make([]event.Record, len(items))
	redelivered := false
	for i, it := range items {
		records[i] = it.record
		redelivered = redelivered || it.delivery.Delivered > 1
	}
	err := b.store.AcceptAll(ctx, records)
	if err == nil {
		b.report.Done += len(items)
		for _, it := range items {
			// After a lost acknowledgement the message is redelivered; that is no error.
			_ = it.delivery.Ack()
		}
		return nil
	}
	poison := b.store.Poison(err)
	if !poison {
		b.failures, b.last = b.failures+1, err
	}
	split := poison || redelivered && ctx.Err() == nil
	switch {
	case split && len(items) > 1:
		half := len(items) / 2
		return errors.Join(b.accept(ctx, items[:half]), b.accept(ctx, items[half:]))
	case poison:
		b.bad = append(b.bad, items[0].failed(err))
		return nil
	case split:
		b.alone = append(b.alone, items[0].failed(err))
		return nil
	}
	return b.giveBack(items)
}

// giveBack has items redelivered: the database is away, which is not their fault.
func (b *batch) giveBack(items []item) error {
	for i := range items {
		items[i].err = b.last
	}
	b.again(items)
	b.report.More = false
	return b.last
}

// sortOut handles the messages that could not be accepted. One that fails alone is
// redelivered. If it has used up its deliveries, and the store answered (a conflict is an
// answer) and accepted others meanwhile, it becomes a dead letter: it would hold up
// whatever waits until the consumer has read everything.
func (b *batch) sortOut(ctx context.Context) error {
	var failures []error
	for _, it := range b.alone {
		switch {
		case b.report.Done == 0:
			failures = append(failures, it.err)
			b.report.More = false
			b.again([]item{it})
		case (fault.Of(it.err) != fault.Unavailable || postgres.Conflicted(it.err)) && it.delivery.Delivered >= uint64(b.env.Settings.LeaseMaxAttempts):
			b.bad = append(b.bad, it)
		default:
			b.env.Logger().WarnContext(ctx, "event not accepted, others were", "event_id", it.delivery.Message.ID,
				"delivered", it.delivery.Delivered, "error", it.err.Error())
			b.again([]item{it})
		}
	}
	for _, it := range b.bad {
		failures = append(failures, b.bury(ctx, it))
	}
	return errors.Join(failures...)
}

func (b *batch) again(items []item) {
	for _, it := range items {
		b.traced.Ended(it.n, it.err)
		_ = it.delivery.Again(againAfter) // it is redelivered in any case
	}
	b.report.Retried += len(items)
}

// bury keeps a message that can never be accepted as a dead letter, and only then
// terminates it at the broker.
func (b *batch) bury(ctx context.Context, it item) error {
	b.traced.Ended(it.n, it.err)
	err := b.store.DeadLetter(ctx, deadletter.Letter{
		Data: it.delivery.Message.Data, Headers: it.delivery.Headers,
		EventID: it.delivery.Message.ID, Type: it.delivery.Message.Type, Reason: it.err,
	})
	if err != nil {
		b.again([]item{it})
		b.report.More = false
		return err
	}
	b.env.Logger().WarnContext(ctx, "event put aside", "event_id", it.delivery.Message.ID, "error", it.err.Error())
	b.report.Dead++
	return it.delivery.Terminate("dead letter")
}
