package functions_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// The main job: somebody is granted something, and is told once, by wakes alone.
func TestGrantIsTold(t *testing.T) {
	t.Parallel()
	s := setup(t)
	a := s.grant("k1", "u_1", "item1")
	if a.status != http.StatusOK || a.json(t)["status"] != "ACTIVE" || a.header.Get("ETag") != `"1"` {
		t.Fatalf("grant: %d %s %v", a.status, a.body, a.header)
	}
	eventually(t, 5*time.Second, "the notification is SENT", func() bool {
		return s.count(`SELECT count(*) FROM notification.notifications WHERE user_id = 'u_1' AND status = 'SENT'`) == 1
	})
	inbox := s.call(http.MethodGet, "/debug/notification/inbox/u_1", s.ops, "").json(t)["notifications"].([]any)
	if len(inbox) != 1 {
		t.Fatalf("inbox: %v", inbox)
	}
	told := inbox[0].(map[string]any)
	payload := told["payload"].(map[string]any)
	if told["event_type"] != "EntitlementGranted" || payload["version"] != 1.0 || payload["source"] != "purchase" || payload["source_id"] != "p_k1" {
		t.Fatalf("told: %v", told)
	}
}

// Ticks alone do it too: a wake that is lost costs latency, never data.
func TestGrantIsToldByTicks(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	s.grant("k1", "u_1", "item1")
	for _, function := range []string{"relay", "notify", "deliver"} {
		if report := s.tick(function); report.Done != 1 {
			t.Fatalf("%s: %+v", function, report)
		}
	}
	if n := s.count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`); n != 1 {
		t.Fatalf("%d notifications SENT", n)
	}
}

// 64 requests at once with one key have one effect, and all get the same answer.
func TestOneKeyAtOnce(t *testing.T) {
	t.Parallel()
	oneKeyAtOnce(t, setup(t, "WAKES=false"))
}

func oneKeyAtOnce(t *testing.T, s *system) {
	const clients = 64
	bodies := make([]string, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			a := s.grant("same", "u_1", "item1")
			bodies[i] = fmt.Sprint(a.status, " ", string(a.body))
		})
	}
	group.Wait()
	for _, body := range bodies {
		if body != bodies[0] {
			t.Fatalf("answers differ:\n%s\n%s", bodies[0], body)
		}
	}
	for _, table := range []string{"entitlement.entitlements", "entitlement.outbox_events", "entitlement.entitlement_audit", "entitlement.idempotency_keys"} {
		if n := s.count(`SELECT count(*) FROM ` + table); n != 1 {
			t.Errorf("%s has %d rows", table, n)
		}
	}
	if v := s.count(`SELECT version FROM entitlement.entitlements`); v != 1 {
		t.Errorf("version %d", v)
	}
}
