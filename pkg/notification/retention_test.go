package notification_test

import (
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/notification"
)

// Cleanup goes in short steps, and keeps FAILED notifications and dead letters.
func TestCleanup(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const day = 24 * time.Hour
	// Ids that are as old as their rows, as UUIDv7 are.
	f.exec(`INSERT INTO notification.notifications (notification_id, event_id, user_id, event_type, payload, occurred_at, status, finished_at)
		SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, gen_random_uuid(), 'u', 'EntitlementGranted', '{}', now(),
			CASE WHEN n % 10 = 0 THEN 'FAILED' ELSE 'SENT' END, now() - interval '31 days'
		FROM generate_series(1, 2500) n`)
	f.exec(`INSERT INTO notification.processed_events SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, now() - interval '31 days' FROM generate_series(1, 2500) n`)
	f.told(5)
	f.step(channel(nothing))
	keep := notification.Retention{Processed: 30 * day, Sent: 30 * day}
	total := 0
	for step := 1; ; step++ {
		deleted, more, err := f.store.Cleanup(f.ctx, keep)
		if err != nil {
			t.Fatal(err)
		}
		if deleted > 2000 {
			t.Fatalf("one step deleted %d rows", deleted)
		}
		total += deleted
		if !more {
			break
		}
		if step > 10 {
			t.Fatal("it does not end")
		}
	}
	if total != 2250+2500 {
		t.Errorf("%d deleted", total)
	}
	if failed, fresh, events := f.count(`notification.notifications WHERE status = 'FAILED'`),
		f.count(`notification.notifications WHERE status = 'SENT'`), f.count(`notification.processed_events`); failed != 250 || fresh != 5 || events != 5 {
		t.Errorf("kept: %d FAILED, %d SENT, %d processed", failed, fresh, events)
	}
}
