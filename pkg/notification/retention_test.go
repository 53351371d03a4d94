package notification_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Cleanup runs in short steps, and keeps FAILED notifications and dead letters.
func TestCleanup(t *testing.T) {
	t.Parallel()
	f := setup(t)
	// As with UUIDv7, the ids are as old as their rows.
	f.exec(`INSERT INTO notification.notifications (notification_id, event_id, user_id, event_type, payload, occurred_at, status, finished_at)
		SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, gen_random_uuid(), 'u', 'EntitlementGranted', '{}', now(),
			CASE WHEN n % 10 = 0 THEN 'FAILED' ELSE 'SENT' END, now() - interval '31 days'
		FROM generate_series(1, 2500) n`)
	f.exec(`INSERT INTO notification.processed_events SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, now() - interval '31 days' FROM generate_series(1, 2500) n`)
	f.pending(5)
	f.step(channel(nothing))
	keep := notification.Retention{Processed: 30 * day, Sent: 30 * day}
	total := 0
	for step := 1; ; step++ {
		deleted, more, err := f.store.Cleanup(f.ctx, keep)
		if err != nil {
			t.Fatal(err)
		}
		if deleted > 2000 {
			t.Fatalf("one step deleted %d rows, want 2000 at most", deleted)
		}
		total += deleted
		if !more {
			break
		}
		if step > 10 {
			t.Fatal("Cleanup does not end")
		}
	}
	if total != 2250+2500 {
		t.Errorf("%d rows were deleted, want %d", total, 2250+2500)
	}
	if failed, fresh, events := f.count(`notification.notifications WHERE status = 'FAILED'`),
		f.count(`notification.notifications WHERE status = 'SENT'`), f.count(`notification.processed_events`); failed != 250 || fresh != 5 || events != 5 {
		t.Errorf("kept: %d FAILED, %d SENT, %d processed; want 250, 5, 5", failed, fresh, events)
	}
}

const day = 24 * time.Hour

// ended inserts notifications that ended age ago.
func (f *fixture) ended(from, to int, status string, age time.Duration) {
	f.t.Helper()
	f.exec(`INSERT INTO notification.notifications (notification_id, event_id, user_id, event_type, payload, occurred_at, status, finished_at)
		SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, gen_random_uuid(), 'u', 'EntitlementGranted', '{}', now(), $3, now() - $4::interval
		FROM generate_series($1::int, $2) n`, from, to, status, age)
}

// FAILED notifications have a retention of their own, and their dead letters are deleted
// with them; letters of messages that could not be read stay.
func TestCleanupOfFailed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ended(1, 10, "FAILED", 100*day)
	f.ended(11, 20, "FAILED", 9*day)
	f.exec(`INSERT INTO notification.notification_dlq (notification_id, error) SELECT notification_id, 'e' FROM notification.notifications`)
	f.exec(`INSERT INTO notification.notification_dlq (raw_message, error, created_at) VALUES ('x', 'e', now() - interval '1 year')`)
	left := func(r notification.Retention) (notifications, letters int) {
		if _, _, err := f.store.Cleanup(f.ctx, r); err != nil {
			t.Fatal(err)
		}
		return f.count(`notification.notifications`), f.count(`notification.notification_dlq`)
	}
	if n, letters := left(notification.Retention{Processed: 30 * day, Sent: 30 * day}); n != 20 || letters != 21 {
		t.Errorf("%d notifications and %d letters are left, want 20 and 21", n, letters)
	}
	if n, letters := left(notification.Retention{Processed: 30 * day, Sent: 30 * day, Failed: 90 * day}); n != 10 || letters != 11 {
		t.Errorf("%d notifications and %d letters are left, want 10 and 11", n, letters)
	}
}

// An event is forgotten when its processing is long ago, however old the event is: it may
// have come late.
func TestProcessedEventsAreKeptByTheirTime(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`INSERT INTO notification.processed_events VALUES
		('01900000-0000-7000-8000-000000000001', now() - interval '29 days'), ('01900000-0000-7000-8000-000000000002', now() - interval '31 days')`)
	if _, _, err := f.store.Cleanup(f.ctx, notification.Retention{Processed: 30 * day, Sent: 30 * day}); err != nil {
		t.Fatal(err)
	}
	if n := f.count(`notification.processed_events WHERE event_id = '01900000-0000-7000-8000-000000000001'`); n != 1 {
		t.Error("an old event that was processed 29 days ago is forgotten")
	}
	if n := f.count(`notification.processed_events`); n != 1 {
		t.Errorf("%d events are remembered, want 1", n)
	}
}

// Cleanup reads the rows that it deletes, and hardly any that stay.
func TestCleanupReadsWhatItDeletes(t *testing.T) {
	t.Parallel()
	config := kit.Pool(t).Config()
	config.MaxConns = 1 // makes statistics exact: they are one backend's, flushed by it
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	f := &fixture{t: t, ctx: t.Context(), pool: pool, store: notification.NewStore(pool)}
	f.ended(1, 20_000, "FAILED", 100*day)
	f.ended(20_001, 40_000, "SENT", 31*day)
	f.exec(`VACUUM ANALYZE notification.notifications`)
	read := func() (n int) {
		f.exec(`SELECT pg_stat_force_next_flush()`)
		if err := pool.QueryRow(f.ctx, `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relid = 'notification.notifications'::regclass`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := read()
	if deleted, _, err := f.store.Cleanup(f.ctx, notification.Retention{Processed: 30 * day, Sent: 30 * day}); err != nil || deleted != 1000 {
		t.Errorf("%d deleted, %v; want 1,000", deleted, err)
	}
	if n := read() - before; n > 5000 {
		t.Errorf("Cleanup read %d rows to delete 1,000, want 5,000 at most", n)
	}
}
