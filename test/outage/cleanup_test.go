package outage_test

import (
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// Cleanup removes published rows behind reconcile's watermark, of each outbox, and logs
// that it keeps the others.
func TestOutboxesAreCleanedBehindReconcile(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	s.Grant("k1", "u_1", "item1")
	s.Opened(s.Operator, "u_1", "10")
	for _, function := range []string{"relay", "settle", "relay", "notify"} {
		s.Tick(function)
	}
	outboxes := []string{"entitlement.outbox_events", "integration.outbox_events"}
	rows := func() (n int) {
		for _, table := range outboxes {
			n += s.Count(`SELECT count(*) FROM ` + table)
		}
		return n
	}
	for _, table := range outboxes {
		_, err := s.Pool.Exec(t.Context(), `UPDATE `+table+` SET finished_at = now() - interval '8 days'`)
		kit.Must(t, err)
	}
	const kept = "published events are kept: reconcile has not passed them"
	// The rows of a grant, of an opening, and of its settlement.
	if s.Tick("cleanup"); rows() != 3 {
		t.Fatalf("%d outbox rows are left before reconcile, want 3", rows())
	}
	if n := strings.Count(s.Log.String(), kept); n != 2 {
		t.Errorf("the log says %d times that rows are kept, want once for each outbox", n)
	}
	s.Tick("reconcile")
	if s.Tick("cleanup"); rows() != 0 {
		t.Errorf("%d reconciled outbox rows are left, want 0", rows())
	}
	if n := strings.Count(s.Log.String(), kept); n != 2 {
		t.Error("the log says that rows are kept, but there are none")
	}
}
