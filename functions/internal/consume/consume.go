// Package consume is what functions share that accept events from a broker: a
// batch is accepted in one statement, and what can never be accepted is put aside
// alone.
package consume

import (
	"context"
	"errors"
	"time"

	"github.com/miniserversystem/miniserver/pkg/deadletter"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

// againAfter is when a message comes again that could not be stored now.
const againAfter = 2 * time.Second

// Store is the domain that is told.
type Store interface {
	// AcceptAll deals with all of the events, or none, and with each once however
	// often it comes.
	AcceptAll(context.Context, []event.Record) error
	// Poison reports whether an error of AcceptAll is the fault of an event, so that
	// trying again cannot help.
	Poison(error) bool
	// DeadLetter keeps a message that can never be accepted.
	DeadLetter(context.Context, deadletter.Letter) error
}

// Source is a broker's consumer.
type Source interface {
	// Fetch returns up to limit messages that are there now; none means that none is
	// left. Its error is fault.Unavailable.
	Fetch(ctx context.Context, limit int) ([]event.Delivery, error)
}

// Consumption is a store that consumes events.
type Consumption struct {
	env   *fn.Env
	store Store
	next  string // woken when something was accepted
}

// New returns a consumption; next is the function that goes on.
func New(e *fn.Env, store Store, next string) *Consumption { return &Consumption{e, store, next} }

// Step accepts one batch. Messages are acknowledged after the commit
// only, so a crash brings them again, and Accept knows them.
func (c *Consumption) Step(ctx context.Context, source Source) (fn.Report, error) {
	deliveries, err := source.Fetch(ctx, c.env.Settings.LeaseBatch)
	if err != nil || len(deliveries) == 0 {
		return fn.Report{}, err
	}
	// Only an empty Fetch says that nothing is left.
	report := fn.Report{Claimed: len(deliveries), More: true}
	err = c.accept(ctx, decode(deliveries), &report)
	if report.Done > 0 {
		c.env.Wake(c.next)
	}
	return report, err
}

// item is a delivery with what it holds, or why it cannot be read.
type item struct {
	delivery event.Delivery
	record   event.Record
	err      error
}

func decode(deliveries []event.Delivery) []item {
	items := make([]item, len(deliveries))
	for i, d := range deliveries {
		record, err := event.Decode(d.Message)
		items[i] = item{d, record, err}
	}
	return items
}

// accept stores what can be read in one statement. When an event in it is
// poison, the batch is halved until that one is alone; the others are accepted.
func (c *Consumption) accept(ctx context.Context, items []item, report *fn.Report) error {
	var readable []item
	var records []event.Record
	var failures []error
	for _, it := range items {
		if it.err != nil {
			failures = append(failures, c.bury(ctx, it, it.err, report))
			continue
		}
		readable = append(readable, it)
		records = append(records, it.record)
	}
	if len(readable) == 0 {
		return errors.Join(failures...)
	}
	err := c.store.AcceptAll(ctx, records)
	switch {
	case err == nil:
		report.Done += len(readable)
		for _, it := range readable {
			// An acknowledgement that is lost brings the message again; that is no error.
			_ = it.delivery.Ack()
		}
	case c.store.Poison(err) && len(readable) == 1:
		failures = append(failures, c.bury(ctx, readable[0], err, report))
	case c.store.Poison(err):
		half := len(readable) / 2
		failures = append(failures, c.accept(ctx, readable[:half], report), c.accept(ctx, readable[half:], report))
	default:
		// A database that is away is not the messages' fault: they come again.
		for _, it := range readable {
			_ = it.delivery.Again(againAfter)
		}
		report.Retried += len(readable)
		report.More = false
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// bury keeps a message that can never be accepted as a dead letter, and only
// then tells the broker not to send it again.
func (c *Consumption) bury(ctx context.Context, it item, reason error, report *fn.Report) error {
	err := c.store.DeadLetter(ctx, deadletter.Letter{
		Data: it.delivery.Message.Data, Headers: it.delivery.Headers,
		EventID: it.delivery.Message.ID, Type: it.delivery.Message.Type, Reason: reason,
	})
	if err != nil {
		_ = it.delivery.Again(againAfter)
		report.Retried++
		if fault.Of(err) == fault.Unavailable {
			report.More = false
		}
		return err
	}
	c.env.Logger().WarnContext(ctx, "event put aside", "event_id", it.delivery.Message.ID, "error", reason.Error())
	report.Dead++
	return it.delivery.Terminate("dead letter")
}
