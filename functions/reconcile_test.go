package functions_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	msjetstream "github.com/miniserversystem/miniserver/pkg/jetstream"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// The broker loses its store after events were PUBLISHED and before they were
// consumed: they are published again, and told once.
func TestLostByTheBroker(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	s.grant("told", "u_1", "item1")
	s.tick("relay")
	s.tick("notify")
	s.grant("lost", "u_1", "item2")
	s.tick("relay")
	deleteStream(t, s)

	if n := s.count(`SELECT count(*) FROM entitlement.outbox_events WHERE status = 'PUBLISHED'`); n != 2 {
		t.Fatalf("%d PUBLISHED", n)
	}
	if report := s.tick("notify"); report.Claimed != 0 {
		t.Fatalf("the store is gone, and notify got %+v", report)
	}
	if report := s.tick("reconcile"); report.Retried != 1 || report.Done != 1 {
		t.Fatalf("reconcile: %+v", report)
	}
	// It waits for its consumer now, and is not published a third time.
	s.tick("reconcile")
	if n := messages(t, s); n != 1 {
		t.Fatalf("%d messages in the new stream", n)
	}
	if report := s.tick("notify"); report.Done != 1 {
		t.Fatalf("notify: %+v", report)
	}
	// It has arrived: the watermark passes it, and nothing is published again.
	if report := s.tick("reconcile"); report.Done != 2 || report.Retried != 0 {
		t.Fatalf("reconcile again: %+v", report)
	}
	if report := s.tick("reconcile"); report.Claimed != 0 {
		t.Fatalf("reconcile a third time: %+v", report)
	}
	if n := s.count(`SELECT count(*) FROM notification.notifications`); n != 2 {
		t.Fatalf("%d notifications for 2 events", n)
	}
}

// What only waits for its consumer is not lost, and is not published again.
func TestBacklogIsNotLost(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	s.grant("waiting", "u_1", "item1")
	s.tick("relay")
	s.tick("reconcile")
	if n := messages(t, s); n != 1 {
		t.Fatalf("%d messages for one event", n)
	}
}

// A row that is not published yet holds the watermark.
func TestWatermarkWaitsForTheUnfinished(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	s.grant("first", "u_1", "item1")
	s.tick("relay")
	s.tick("notify")
	s.grant("second", "u_1", "item2")
	if report := s.tick("reconcile"); report.Claimed != 1 {
		t.Fatalf("reconcile: %+v, want the first row only", report)
	}
	s.tick("relay")
	deleteStream(t, s)
	if report := s.tick("reconcile"); report.Retried != 1 {
		t.Fatalf("reconcile: %+v, want the second published again", report)
	}
}

func stream(t *testing.T, s *system) (jetstream.JetStream, func()) {
	t.Helper()
	conn, err := nats.Connect(s.nats.URL())
	must(t, err)
	js, err := jetstream.New(conn)
	must(t, err)
	return js, conn.Close
}

func deleteStream(t *testing.T, s *system) {
	t.Helper()
	js, closeIt := stream(t, s)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	must(t, js.DeleteStream(ctx, msjetstream.StreamName(event.EntitlementSubject)))
}

func messages(t *testing.T, s *system) uint64 {
	t.Helper()
	js, closeIt := stream(t, s)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := js.Stream(ctx, msjetstream.StreamName(event.EntitlementSubject))
	must(t, err)
	info, err := found.Info(ctx)
	must(t, err)
	return info.State.Msgs
}

// A store that held many is recovered in one tick, and each is told once.
func TestManyLostByTheBroker(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false", "RECONCILE_AFTER=1m")
	const events = 1200 // more than two batches
	_, err := s.pool.Exec(t.Context(), `
		INSERT INTO entitlement.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at)
		SELECT id, 'u/' || n, 'EntitlementGranted', jsonb_build_object('event_id', id, 'event_type', 'EntitlementGranted',
			'user_id', 'u_' || n, 'stock_keeping_unit', 'item1', 'version', 1), now()
		FROM generate_series(1, $1) n, LATERAL (SELECT ('0197' || lpad(to_hex(n), 8, '0') || '7' || lpad(to_hex(n), 3, '0') || '8' || lpad(to_hex(n), 15, '0'))::uuid AS id) i`, events)
	must(t, err)
	s.tick("relay")
	deleteStream(t, s)
	report := s.tick("reconcile")
	if report.Retried != events {
		t.Fatalf("reconcile: %+v", report)
	}
	s.tick("notify")
	if n := s.count(`SELECT count(*) FROM notification.notifications`); n != events {
		t.Fatalf("%d notifications for %d events", n, events)
	}
	if report := s.tick("reconcile"); report.Done != events || report.Retried != 0 {
		t.Fatalf("reconcile again: %+v", report)
	}
	if report := s.tick("reconcile"); report.Claimed != 0 {
		t.Fatalf("the watermark did not pass: %+v", report)
	}
}

// One message is lost while the broker still knows its id: it is published again under
// another, or the broker would say that it has it.
func TestLostWithinTheDuplicateWindow(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	wantStatus(t, s.grant("lost", "u_1", "item1"), http.StatusOK)
	s.tick("relay")
	js, closeIt := stream(t, s)
	defer closeIt()
	found, err := js.Stream(t.Context(), msjetstream.StreamName(event.EntitlementSubject))
	must(t, err)
	must(t, found.DeleteMsg(t.Context(), 1))
	if report := s.tick("notify"); report.Claimed != 0 {
		t.Fatalf("the message is gone, and notify got %+v", report)
	}
	if report := s.tick("reconcile"); report.Retried != 1 {
		t.Fatalf("reconcile: %+v, want the lost event published again", report)
	}
	if n := messages(t, s); n != 1 {
		t.Fatalf("%d messages in the stream, want the one that was published again", n)
	}
	if report := s.tick("notify"); report.Done != 1 {
		t.Fatalf("notify: %+v, want the event", report)
	}
}

// Each consumer of an outbox has a watermark of its own, and both move: what is behind
// them may be removed.
func TestWatermarksOfTransfersMove(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	operator := people.token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice, bob := people.player(t, "alice"), people.player(t, "bob")
	from, to := s.opened(operator, s.userID(alice), "10"), s.opened(operator, s.userID(bob), "0")
	wantStatus(t, s.pay(alice, s.transferKey(alice), from, to, "1"), http.StatusOK)
	for _, function := range []string{"relay", "settle", "relay", "notify", "reconcile"} {
		s.tick(function)
	}
	for consumer, condition := range map[string]string{"settle": transfer.CompletedEvents, "notify": transfer.SettledEvents} {
		if n := s.count(`SELECT count(*) FROM integration.outbox_events WHERE ` + condition); n == 0 {
			t.Fatalf("there are no events for %s; this test shows nothing", consumer)
		}
		if n := s.count(`SELECT count(*) FROM integration.outbox_events WHERE `+condition+
			` AND event_id > coalesce((SELECT up_to FROM integration.outbox_reconciled WHERE consumer = $1), '00000000-0000-0000-0000-000000000000')`, consumer); n != 0 {
			t.Errorf("%d events that %s has are beyond its watermark", n, consumer)
		}
	}
}

// A consumer that never got on has a mark, too: cleanup goes by the slowest.
func TestConsumerThatNeverGotOnHasAMark(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	operator := people.token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice := people.player(t, "alice")
	s.opened(operator, s.userID(alice), "10")
	s.tick("relay") // and settle never runs
	s.tick("reconcile")
	_, err := s.pool.Exec(t.Context(), `UPDATE integration.outbox_events SET finished_at = now() - interval '8 days'`)
	must(t, err)
	s.tick("cleanup")
	if n := s.count(`SELECT count(*) FROM integration.outbox_events`); n != 1 {
		t.Errorf("%d events are kept that settle never got, want 1", n)
	}
}

// The same event twice in one batch is settled once.
func TestSettledOnceWithinABatch(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	operator := people.token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice, bob := people.player(t, "alice"), people.player(t, "bob")
	from, to := s.opened(operator, s.userID(alice), "0"), s.opened(operator, s.userID(bob), "10")
	wantStatus(t, s.pay(bob, s.transferKey(bob), to, from, "1"), http.StatusOK)
	s.tick("relay")
	js, closeIt := stream(t, s)
	defer closeIt()
	found, err := js.Stream(t.Context(), msjetstream.StreamName(event.TransferSubject))
	must(t, err)
	state := found.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		sent, err := found.GetMsg(t.Context(), seq)
		must(t, err)
		sent.Header.Set(jetstream.MsgIDHeader, "again-"+strconv.FormatUint(seq, 10))
		_, err = js.PublishMsg(t.Context(), &nats.Msg{Subject: sent.Subject, Header: sent.Header, Data: sent.Data})
		must(t, err)
	}
	events := int(state.Msgs)
	if report := s.tick("settle"); report.Claimed != 2*events || report.Done != 2*events {
		t.Errorf("settle: %+v, want each of %d events twice", report, events)
	}
	if n := s.count(`SELECT count(*) FROM integration.outbox_events WHERE event_type = 'TransferSettled'`); n != events {
		t.Errorf("%d TransferSettled for %d transfers that came twice in one batch", n, events)
	}
}
