package outage_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/miniserversystem/miniserver/pkg/event"
	msjetstream "github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/transfer"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// The broker loses its store after events were PUBLISHED and before they were consumed:
// they are published again, and notified once.
func TestLostByTheBroker(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	s.Grant("told", "u_1", "item1")
	s.Tick("relay")
	s.Tick("notify")
	s.Grant("lost", "u_1", "item2")
	s.Tick("relay")
	deleteStream(t, s)

	if n := s.Count(`SELECT count(*) FROM entitlement.outbox_events WHERE status = 'PUBLISHED'`); n != 2 {
		t.Fatalf("%d PUBLISHED, want 2", n)
	}
	if report := s.Tick("notify"); report.Claimed != 0 {
		t.Fatalf("the store is gone, but notify claimed %+v", report)
	}
	if report := s.Tick("reconcile"); report.Retried != 1 || report.Done != 1 {
		t.Fatalf("reconcile: %+v, want one retried and one done", report)
	}
	// The event now waits for its consumer, and is not published a third time.
	s.Tick("reconcile")
	if n := messages(t, s); n != 1 {
		t.Fatalf("%d messages in the new stream, want 1", n)
	}
	if report := s.Tick("notify"); report.Done != 1 {
		t.Fatalf("notify: %+v, want the event", report)
	}
	// The event has arrived: the watermark passes it, and nothing is published again.
	if report := s.Tick("reconcile"); report.Done != 2 || report.Retried != 0 {
		t.Fatalf("reconcile again: %+v", report)
	}
	if report := s.Tick("reconcile"); report.Claimed != 0 {
		t.Fatalf("reconcile a third time: %+v", report)
	}
	if n := s.Count(`SELECT count(*) FROM notification.notifications`); n != 2 {
		t.Fatalf("%d notifications for 2 events", n)
	}
}

// A message that waits for its consumer is not lost, and is not published again.
func TestBacklogIsNotLost(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	s.Grant("waiting", "u_1", "item1")
	s.Tick("relay")
	s.Tick("reconcile")
	if n := messages(t, s); n != 1 {
		t.Fatalf("%d messages for one event, want 1", n)
	}
}

// A row that is not published yet holds back the watermark.
func TestWatermarkWaitsForTheUnfinished(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	s.Grant("first", "u_1", "item1")
	s.Tick("relay")
	s.Tick("notify")
	s.Grant("second", "u_1", "item2")
	kit.Eventually(t, "both are old enough to be looked for", func() (old bool) {
		kit.Must(t, s.Pool.QueryRow(t.Context(), `SELECT max(occurred_at) < clock_timestamp() - interval '5 ms' FROM entitlement.outbox_events`).Scan(&old))
		return old
	})
	if report := s.Tick("reconcile"); report.Claimed != 1 {
		t.Fatalf("reconcile: %+v, want the first row only", report)
	}
	s.Tick("relay")
	deleteStream(t, s)
	if report := s.Tick("reconcile"); report.Retried != 1 {
		t.Fatalf("reconcile: %+v, want the second published again", report)
	}
}

func deleteStream(t *testing.T, s *system.System) {
	t.Helper()
	js, closeIt := system.JetStream(t, s)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	kit.Must(t, js.DeleteStream(ctx, msjetstream.StreamName(event.EntitlementSubject)))
}

func messages(t *testing.T, s *system.System) uint64 {
	t.Helper()
	js, closeIt := system.JetStream(t, s)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := js.Stream(ctx, msjetstream.StreamName(event.EntitlementSubject))
	kit.Must(t, err)
	info, err := found.Info(ctx)
	kit.Must(t, err)
	return info.State.Msgs
}

// Many events that the broker lost are published again in one tick, and each is notified
// once.
func TestManyLostByTheBroker(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false", "RECONCILE_AFTER=1m")
	const events = 1200 // more than two batches
	_, err := s.Pool.Exec(t.Context(), `
		INSERT INTO entitlement.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at)
		SELECT id, 'u/' || n, 'EntitlementGranted', jsonb_build_object('event_id', id, 'event_type', 'EntitlementGranted',
			'user_id', 'u_' || n, 'stock_keeping_unit', 'item1', 'version', 1), now()
		FROM generate_series(1, $1) n, LATERAL (SELECT ('0197' || lpad(to_hex(n), 8, '0') || '7' || lpad(to_hex(n), 3, '0') || '8' || lpad(to_hex(n), 15, '0'))::uuid AS id) i`, events)
	kit.Must(t, err)
	s.Tick("relay")
	deleteStream(t, s)
	report := s.Tick("reconcile")
	if report.Retried != events {
		t.Fatalf("reconcile: %+v, want %d retried", report, events)
	}
	s.Tick("notify")
	if n := s.Count(`SELECT count(*) FROM notification.notifications`); n != events {
		t.Fatalf("%d notifications for %d events", n, events)
	}
	if report := s.Tick("reconcile"); report.Done != events || report.Retried != 0 {
		t.Fatalf("reconcile again: %+v", report)
	}
	if report := s.Tick("reconcile"); report.Claimed != 0 {
		t.Fatalf("the watermark did not pass all: %+v", report)
	}
}

// A message is lost while the broker still knows its id: it is published under another,
// or the broker would take it for a duplicate.
func TestLostWithinTheDuplicateWindow(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	system.WantStatus(t, s.Grant("lost", "u_1", "item1"), http.StatusOK)
	s.Tick("relay")
	js, closeIt := system.JetStream(t, s)
	defer closeIt()
	found, err := js.Stream(t.Context(), msjetstream.StreamName(event.EntitlementSubject))
	kit.Must(t, err)
	kit.Must(t, found.DeleteMsg(t.Context(), 1))
	if report := s.Tick("notify"); report.Claimed != 0 {
		t.Fatalf("the message is gone, but notify claimed %+v", report)
	}
	if report := s.Tick("reconcile"); report.Retried != 1 {
		t.Fatalf("reconcile: %+v, want the lost event published again", report)
	}
	if n := messages(t, s); n != 1 {
		t.Fatalf("%d messages in the stream, want the one that was published again", n)
	}
	if report := s.Tick("notify"); report.Done != 1 {
		t.Fatalf("notify: %+v, want the event", report)
	}
}

// Each consumer of an outbox has its own watermark, and all move: rows behind them may be
// removed.
func TestWatermarksOfTransfersMove(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	operator := people.Token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	from, to := s.Opened(operator, s.UserID(alice), "10"), s.Opened(operator, s.UserID(bob), "0")
	system.WantStatus(t, s.Pay(alice, s.TransferKey(alice), from, to, "1"), http.StatusOK)
	for _, function := range []string{"relay", "settle", "relay", "notify", "reconcile"} {
		s.Tick(function)
	}
	for consumer, condition := range map[string]string{"settle": transfer.CompletedEvents, "notify": transfer.SettledEvents} {
		if n := s.Count(`SELECT count(*) FROM integration.outbox_events WHERE ` + condition); n == 0 {
			t.Fatalf("there are no events for %s; this test shows nothing", consumer)
		}
		if n := s.Count(`SELECT count(*) FROM integration.outbox_events WHERE `+condition+
			` AND event_id > coalesce((SELECT up_to FROM integration.outbox_reconciled WHERE consumer = $1), '00000000-0000-0000-0000-000000000000')`, consumer); n != 0 {
			t.Errorf("%d events that %s has consumed are beyond its watermark", n, consumer)
		}
	}
}

// A consumer that never ran has a watermark too: cleanup goes by the slowest.
func TestConsumerThatNeverGotOnHasAMark(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	operator := people.Token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice := people.Player(t, "alice")
	s.Opened(operator, s.UserID(alice), "10")
	s.Tick("relay") // settle never runs
	s.Tick("reconcile")
	_, err := s.Pool.Exec(t.Context(), `UPDATE integration.outbox_events SET finished_at = now() - interval '8 days'`)
	kit.Must(t, err)
	s.Tick("cleanup")
	if n := s.Count(`SELECT count(*) FROM integration.outbox_events`); n != 1 {
		t.Errorf("%d events that settle never consumed are kept, want 1", n)
	}
}

// The same event twice in one batch is settled once.
func TestSettledOnceWithinABatch(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	operator := people.Token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	from, to := s.Opened(operator, s.UserID(alice), "0"), s.Opened(operator, s.UserID(bob), "10")
	system.WantStatus(t, s.Pay(bob, s.TransferKey(bob), to, from, "1"), http.StatusOK)
	s.Tick("relay")
	js, closeIt := system.JetStream(t, s)
	defer closeIt()
	found, err := js.Stream(t.Context(), msjetstream.StreamName(event.TransferSubject))
	kit.Must(t, err)
	state := found.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		sent, err := found.GetMsg(t.Context(), seq)
		kit.Must(t, err)
		sent.Header.Set(jetstream.MsgIDHeader, "again-"+strconv.FormatUint(seq, 10))
		_, err = js.PublishMsg(t.Context(), &nats.Msg{Subject: sent.Subject, Header: sent.Header, Data: sent.Data})
		kit.Must(t, err)
	}
	events := int(state.Msgs)
	if report := s.Tick("settle"); report.Claimed != 2*events || report.Done != 2*events {
		t.Errorf("settle: %+v, want each of %d events twice", report, events)
	}
	if n := s.Count(`SELECT count(*) FROM integration.outbox_events WHERE event_type = 'TransferSettled'`); n != events {
		t.Errorf("%d TransferSettled for %d transfers that came twice in one batch", n, events)
	}
}
