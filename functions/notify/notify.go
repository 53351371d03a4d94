// Package notify is the function that accepts events from JetStream and makes
// notifications of them, once per event and recipient.
package notify

import (
	"context"
	"errors"
	"time"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/notification"
)

// againAfter is when a message comes again that could not be stored now.
const againAfter = 2 * time.Second

type function struct {
	env      *fn.Env
	consumer *jetstream.Consumer
	store    *notification.Store
}

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("notification")
	if err != nil {
		return err
	}
	f := &function{e, jetstream.NewConsumer(e.NATS(), event.EntitlementSubject, notification.Consumer), notification.NewStore(pool)}
	e.Tick(f.step)
	return nil
}

// step accepts one batch. Messages are acknowledged after the commit only, so a
// crash brings them again, and Accept knows them.
func (f *function) step(ctx context.Context) (fn.Report, error) {
	deliveries, err := f.consumer.Fetch(ctx, f.env.Settings.LeaseBatch)
	if err != nil || len(deliveries) == 0 {
		return fn.Report{}, err
	}
	// Only an empty Fetch says that nothing is left.
	report := fn.Report{Claimed: len(deliveries), More: true}
	err = f.accept(ctx, decode(deliveries), &report)
	if report.Done > 0 {
		f.env.Wake("deliver")
	}
	return report, err
}

// item is a delivery with what it holds, or why it cannot be read.
type item struct {
	delivery jetstream.Delivery
	record   event.Record
	err      error
}

func decode(deliveries []jetstream.Delivery) []item {
	items := make([]item, len(deliveries))
	for i, d := range deliveries {
		record, err := event.Decode(d.Message)
		items[i] = item{d, record, err}
	}
	return items
}

// accept stores what can be read in one statement. When an event in it is
// poison, the batch is halved until that one is alone; the others are accepted.
func (f *function) accept(ctx context.Context, items []item, report *fn.Report) error {
	var readable []item
	var records []event.Record
	var failures []error
	for _, it := range items {
		if it.err != nil {
			failures = append(failures, f.bury(ctx, it, it.err, report))
			continue
		}
		readable = append(readable, it)
		records = append(records, it.record)
	}
	if len(readable) == 0 {
		return errors.Join(failures...)
	}
	_, err := f.store.Accept(ctx, records)
	switch {
	case err == nil:
		report.Done += len(readable)
		for _, it := range readable {
			// An acknowledgement that is lost brings the message again; that is no error.
			_ = it.delivery.Ack()
		}
	case notification.Poison(err) && len(readable) == 1:
		failures = append(failures, f.bury(ctx, readable[0], err, report))
	case notification.Poison(err):
		half := len(readable) / 2
		failures = append(failures, f.accept(ctx, readable[:half], report), f.accept(ctx, readable[half:], report))
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
func (f *function) bury(ctx context.Context, it item, reason error, report *fn.Report) error {
	err := f.store.DeadLetter(ctx, notification.Unreadable{
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
	f.env.Logger().WarnContext(ctx, "event put aside", "event_id", it.delivery.Message.ID, "error", reason.Error())
	report.Dead++
	return it.delivery.Terminate("dead letter")
}
