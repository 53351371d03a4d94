package notification_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/deadletter"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Many instances get the same events at once, in batches that overlap in every way: each
// event makes one notification, and there is no deadlock.
func TestAcceptTheSameEventsAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const events, workers = 300, 10
	list := records(events)
	pool := kit.Connect(t, f.database)
	store := notification.NewStore(pool)
	var created atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for _, from := range rand.Perm(3) {
				mine := append([]event.Record(nil), list...)
				rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
				for len(mine) > 0 {
					n := min(len(mine), 1+rand.IntN(80*(from+1)))
					c, err := store.Accept(f.ctx, mine[:n])
					if err != nil {
						t.Error(err)
					}
					created.Add(int64(c))
					mine = mine[n:]
				}
			}
		})
	}
	group.Wait()
	if n := f.count(`notification.notifications`); n != events || created.Load() != events {
		t.Errorf("%d notifications, %d reported, of %d events", n, created.Load(), events)
	}
	if n := f.count(`notification.processed_events`); n != events {
		t.Errorf("%d processed events, want %d", n, events)
	}
	// Accept retries after a deadlock, so the test reads Postgres' count of them. It is
	// complete once the workers' connections are closed.
	pool.Close()
	kit.Eventually(t, "the workers' connections are gone", func() bool {
		return f.count(`pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`) == 0
	})
	if n := f.count(`generate_series(1, (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()))`); n != 0 {
		t.Errorf("%d deadlocks, want none", n)
	}
}

func TestAcceptDuplicatesInsideABatch(t *testing.T) {
	t.Parallel()
	f := setup(t)
	list := records(5)
	list = append(list, list...)
	list = append(list, list[2])
	if created, err := f.store.Accept(f.ctx, list); err != nil || created != 5 {
		t.Fatalf("created %d, %v; want 5", created, err)
	}
	if created, err := f.store.Accept(f.ctx, list); err != nil || created != 0 {
		t.Fatalf("again: created %d, %v; want none", created, err)
	}
	if created, err := f.store.Accept(f.ctx, nil); err != nil || created != 0 {
		t.Fatalf("no events: created %d, %v; want none", created, err)
	}
}

// An event id in upper case is the same event.
func TestAcceptKnowsAnEventInAnySpelling(t *testing.T) {
	t.Parallel()
	f := setup(t)
	r := record("u_1")
	upper := r
	upper.ID = strings.ToUpper(r.ID)
	if created, err := f.store.Accept(f.ctx, []event.Record{r, upper}); err != nil || created != 1 {
		t.Errorf("created %d, %v; want 1", created, err)
	}
}

// An event is remembered for longer than its notification, so that retention does not let
// a user be notified twice.
func TestAcceptAfterTheNotificationIsGone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	r := record("u_1")
	for want := 1; want >= 0; want-- {
		if created, err := f.store.Accept(f.ctx, []event.Record{r}); err != nil || created != want {
			t.Fatalf("created %d, want %d; %v", created, want, err)
		}
		f.exec(`DELETE FROM notification.notifications`)
	}
}

// poison returns events that can never be accepted.
func poison() map[string]event.Record {
	change := func(do func(*event.Record)) event.Record {
		r := record("u_1")
		do(&r)
		return r
	}
	return map[string]event.Record{
		"no UUID":                         change(func(r *event.Record) { r.ID = "not-a-uuid" }),
		"no id":                           change(func(r *event.Record) { r.ID = "" }),
		"no recipient":                    change(func(r *event.Record) { r.Payload = []byte(`{}`) }),
		"not JSON":                        change(func(r *event.Record) { r.Payload = []byte(`{`) }),
		"recipient is a number":           change(func(r *event.Record) { r.Payload = []byte(`{"user_id":7}`) }),
		"NUL in the payload":              change(func(r *event.Record) { r.Payload = []byte(`{"user_id":"u","source":"\u0000"}`) }),
		"NUL in the recipient":            change(func(r *event.Record) { r.Payload = []byte(`{"user_id":"\u0000"}`) }),
		"NUL in the trace":                change(func(r *event.Record) { r.Traceparent = "\x00" }),
		"broken UTF-8":                    change(func(r *event.Record) { r.Traceparent = "\xff" }),
		"a lone surrogate":                change(func(r *event.Record) { r.Payload = []byte(`{"user_id":"u","source":"\ud800"}`) }),
		"recipient too long for an index": record(randomText(20_000)),
		"payload nested too deep": change(func(r *event.Record) {
			r.Payload = []byte(`{"user_id":"u","x":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`)
		}),
	}
}

// randomText returns text that does not fit into an index page, even compressed.
func randomText(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(uuid.NewString())
	}
	return b.String()
}

// Poison is recognised, whichever error Postgres returns, and its batch changes nothing.
func TestPoison(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for name, r := range poison() {
		good := record("u_1")
		_, err := f.store.Accept(f.ctx, []event.Record{good, r})
		switch {
		case err == nil && name == "payload nested too deep":
			continue // this server's stack is large enough
		case err == nil:
			t.Errorf("%s: accepted", name)
		case !notification.Poison(err):
			t.Errorf("%s: not poison, so it would be redelivered for ever: %.200v", name, err)
		}
		if n := f.count(`notification.processed_events WHERE event_id = $1`, good.ID); n != 0 {
			t.Errorf("%s: the batch was refused, but its good event was accepted", name)
		}
	}
}

// A database that is away is not poison.
func TestAwayIsNotPoison(t *testing.T) {
	t.Parallel()
	f := setup(t)
	closed := kit.Connect(t, f.database)
	closed.Close()
	nowhere := kit.Connect(t, "postgres://u:p@127.0.0.1:1/none")
	gone, cancel := context.WithCancel(f.ctx)
	cancel()
	late, cancelLate := context.WithTimeout(f.ctx, 1)
	defer cancelLate()
	readOnly := kit.Connect(t, f.database+"&default_transaction_read_only=on")
	for name, accept := range map[string]func() (int, error){
		"closed pool": func() (int, error) { return notification.NewStore(closed).Accept(f.ctx, records(2)) },
		"no server":   func() (int, error) { return notification.NewStore(nowhere).Accept(f.ctx, records(2)) },
		"cancelled":   func() (int, error) { return f.store.Accept(gone, records(2)) },
		"out of time": func() (int, error) { return f.store.Accept(late, records(2)) },
		"failed over": func() (int, error) { return notification.NewStore(readOnly).Accept(f.ctx, records(2)) },
		"no such table": func() (int, error) {
			f.exec(`ALTER TABLE notification.processed_events RENAME TO away`)
			defer f.exec(`ALTER TABLE notification.away RENAME TO processed_events`)
			return f.store.Accept(f.ctx, records(2))
		},
	} {
		_, err := accept()
		if err == nil || notification.Poison(err) {
			t.Errorf("%s: %v, want an error that is not poison", name, err)
		}
		if name != "cancelled" && name != "no such table" && fault.Of(err) != fault.Unavailable {
			t.Errorf("%s is not Unavailable: %v", name, err)
		}
	}
	if n := f.count(`notification.notification_dlq`); n != 0 {
		t.Errorf("%d dead letters, want none", n)
	}
}

// A dead letter keeps the message byte for byte, and takes any text beside it.
func TestDeadLetterKeepsWhatCame(t *testing.T) {
	t.Parallel()
	f := setup(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for i, u := range []deadletter.Letter{
		{Data: all, Headers: map[string][]string{"a": {"1", "2"}, "nul\x00": {"\xff"}}, EventID: "\x00", Type: "\xff", Reason: errors.New("why\x00")},
		{Reason: errors.New(strings.Repeat("é", 3000))},
		{Data: []byte{}, EventID: "empty", Headers: map[string][]string{"empty": {}}, Reason: fmt.Errorf("%w: x", event.ErrUnreadable)},
	} {
		if err := f.store.DeadLetter(f.ctx, u); err != nil {
			t.Fatalf("letter %d: %v", i, err)
		}
	}
	if n := f.count(`notification.notification_dlq WHERE raw_message = $1 AND raw_headers->'a' = '["1", "2"]'`, all); n != 1 {
		t.Error("no dead letter has the bytes and headers of its message")
	}
	if n := f.count(`notification.notification_dlq WHERE raw_message = ''`); n != 2 {
		t.Errorf("%d letters without data, want 2", n)
	}
}
