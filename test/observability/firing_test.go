//go:build observability

package observability_test

import (
	"net/http"
	"testing"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// The broker stops, and an event waits: the alert fires, says which outbox it is, and ends
// when the broker is back.
func TestBacklogRaisesItsAlert(t *testing.T) {
	t.Parallel()
	store := nats.Options{Dir: t.TempDir(), Users: functions.Users()}
	broker, err := nats.Start(t.Context(), store)
	kit.Must(t, err)
	t.Cleanup(func() { _ = broker.Stop() })
	s := system.Start(t, "WAKES=false", "METRICS_ADDRESS=127.0.0.1:0", "NATS_URL="+broker.URLAs(functions.TogetherUser))
	system.WantStatus(t, s.Grant("before", "u_1", "item1"), http.StatusOK)
	s.DeliverAll()
	w := watch(t, s)
	// Other alerts say that nothing ticks this system.
	fires := func() (stale alert, fires bool) {
		s.TryTick("relay")
		stale, fires = w.firing()["OutboxStale"]
		return stale, fires
	}
	kit.Eventually(t, "the outbox is watched", func() bool { return len(w.series(`outbox_oldest_age_seconds{outbox="entitlement"}`)) > 0 })
	if stale, fires := fires(); fires {
		t.Errorf("nothing waits, and the alert is %+v", stale)
	}

	kit.Must(t, broker.Stop())
	system.WantStatus(t, s.Grant("meanwhile", "u_1", "item2"), http.StatusOK)
	// As if it had waited for two minutes.
	_, err = s.Pool.Exec(t.Context(), `UPDATE entitlement.outbox_events SET created_at = created_at - interval '2 minutes' WHERE finished_at IS NULL`)
	kit.Must(t, err)
	var stale alert
	kit.Eventually(t, "the alert fires", func() (now bool) {
		stale, now = fires()
		return now
	})
	if want := `Events of the outbox "entitlement" are not published`; stale.Annotations["summary"] != want || stale.Labels["severity"] != "page" {
		t.Errorf("the alert is %+v, want a page that says %q", stale, want)
	}

	again, err := nats.Start(t.Context(), store)
	kit.Must(t, err)
	t.Cleanup(func() { _ = again.Stop() })
	kit.Eventually(t, "the alert ends", func() bool {
		_, now := fires()
		// An alert also ends when a busy machine misses a reading.
		return !now && w.holds(`max(outbox_oldest_age_seconds{outbox="entitlement",status!="FAILED"}) <= 60`)
	})
	if n := s.Count(`SELECT count(*) FROM entitlement.outbox_events WHERE status <> 'PUBLISHED'`); n != 0 {
		t.Errorf("%d events are not published, and no alert says so", n)
	}
}
