package functions_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	msjetstream "github.com/miniserversystem/miniserver/pkg/jetstream"

	"github.com/miniserversystem/miniserver/pkg/event"
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
