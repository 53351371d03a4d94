package notification_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/notification"
)

// calls records the users of each call that d makes of OnSent.
func (f *fixture) calls(d *notification.Deliverer) *[][]string {
	calls := &[][]string{}
	d.OnSent = func(ctx context.Context, userIDs []string) {
		if ctx.Err() != nil {
			f.t.Errorf("OnSent was called with a context that has ended: %v", ctx.Err())
		}
		// Another connection sees the notifications as SENT: they were committed.
		if n := f.count(`notification.notifications WHERE status = 'SENT' AND user_id = ANY($1)`, userIDs); n == 0 {
			f.t.Errorf("OnSent was called for %v, but nothing was sent to them", userIDs)
		}
		*calls = append(*calls, userIDs)
	}
	return calls
}

func (f *fixture) accept(list ...event.Record) {
	f.t.Helper()
	if created, err := f.store.Accept(f.ctx, list); err != nil || created != len(list) {
		f.t.Fatalf("created %d of %d: %v", created, len(list), err)
	}
}

// OnSent is called once for a batch, with each user to whom something was sent, once.
func TestOnSent(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for i := range 3 {
		f.accept(record("u_a"), record("u_b"), record(fmt.Sprintf("u_%d", i)))
	}
	f.accept(record("u_never"), record("u_later"))
	ctx, end := context.WithCancel(f.ctx)
	var others sync.WaitGroup
	others.Add(10)
	d := f.deliverer(channel(func(_ context.Context, o notification.Outgoing) error {
		switch o.UserID {
		case "u_later":
			others.Wait() // all are sent at once
			end()
			return errTest
		case "u_never":
			defer others.Done()
			return notification.Never(errTest)
		}
		others.Done()
		return nil
	}))
	calls := f.calls(d)
	report, err := d.Step(ctx)
	if err != nil || report.Done != 9 || len(*calls) != 1 {
		t.Fatalf("the step reported %+v, %v, want 9 done; OnSent was called %d times, want 1", report, err, len(*calls))
	}
	users := slices.Sorted(slices.Values((*calls)[0]))
	if want := []string{"u_0", "u_1", "u_2", "u_a", "u_b"}; !slices.Equal(users, want) {
		t.Errorf("OnSent was called for %v, want %v", users, want)
	}
	f.due()
	if _, err := f.deliverer(channel(nothing)).Step(f.ctx); err != nil { // without OnSent
		t.Fatal(err)
	}
}

// OnSent is not called if nothing was sent, if another worker took over, or if SENT could
// not be recorded.
func TestOnSentIsNotCalled(t *testing.T) {
	t.Parallel()
	f := setup(t)
	failing := f.deliverer(channel(func(context.Context, notification.Outgoing) error { return errTest }))
	calls := f.calls(failing)
	step := func(d *notification.Deliverer) lease.Report {
		report, err := d.Step(f.ctx)
		if err != nil {
			t.Error(err)
		}
		return report
	}
	step(failing) // nothing there
	f.pending(1)
	step(failing)

	f.due()
	asleep, awake, ended := make(chan struct{}), make(chan struct{}), make(chan lease.Report, 1)
	slow := f.deliverer(channel(func(context.Context, notification.Outgoing) error {
		close(asleep)
		<-awake
		return nil
	}))
	slowCalls := f.calls(slow)
	go func() { ended <- step(slow) }()
	<-asleep
	f.due()
	f.step(channel(nothing)) // another worker takes over and sends it
	close(awake)
	if report := <-ended; report != (lease.Report{Claimed: 1, LostLease: 1}) {
		t.Errorf("the step reported %+v, want Claimed: 1, LostLease: 1", report)
	}

	f.pending(1)
	f.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''the disk is full''; END'`)
	f.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON notification.notifications FOR EACH ROW WHEN (NEW.status = 'SENT') EXECUTE FUNCTION refuse()`)
	unwritten := f.deliverer(channel(nothing))
	unwrittenCalls := f.calls(unwritten)
	if _, err := unwritten.Step(f.ctx); err == nil {
		t.Error("Step returned no error when SENT was refused")
	}
	if n := len(*calls) + len(*slowCalls) + len(*unwrittenCalls); n != 0 {
		t.Errorf("OnSent was called with %v, %v, %v, want no call", *calls, *slowCalls, *unwrittenCalls)
	}
}
