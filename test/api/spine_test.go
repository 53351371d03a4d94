package api_test

import (
	"net/http"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// The main job: a user is granted something and notified once, by wakes alone.
func TestGrantIsNotified(t *testing.T) {
	t.Parallel()
	s := system.Start(t)
	a := s.Grant("k1", "u_1", "item1")
	if a.Status != http.StatusOK || a.JSON(t)["status"] != "ACTIVE" || a.Header.Get("ETag") != `"1"` {
		t.Fatalf("the grant is answered %d %s %v, want ACTIVE at version 1", a.Status, a.Body, a.Header)
	}
	kit.Eventually(t, "the notification is SENT", func() bool {
		return s.Count(`SELECT count(*) FROM notification.notifications WHERE user_id = 'u_1' AND status = 'SENT'`) == 1
	})
	inbox := s.Call(http.MethodGet, "/debug/notification/inbox/u_1", s.Operator, "").JSON(t)["notifications"].([]any)
	if len(inbox) != 1 {
		t.Fatalf("the inbox is %v, want one notification", inbox)
	}
	notification := inbox[0].(map[string]any)
	payload := notification["payload"].(map[string]any)
	if notification["event_type"] != "EntitlementGranted" || payload["version"] != 1.0 || payload["source"] != "purchase" || payload["source_id"] != "p_k1" {
		t.Fatalf("notification: %v", notification)
	}
}

// Ticks alone do it too: a lost wake costs latency, never data.
func TestGrantIsNotifiedByTicks(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	s.Grant("k1", "u_1", "item1")
	for _, function := range []string{"relay", "notify", "deliver"} {
		if report := s.Tick(function); report.Done != 1 {
			t.Fatalf("the tick of %s reports %+v, want one done", function, report)
		}
	}
	if n := s.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`); n != 1 {
		t.Fatalf("%d notifications are SENT, want 1", n)
	}
}

// 64 simultaneous requests with one key have one effect and one answer.
func TestOneKeyAtOnce(t *testing.T) {
	t.Parallel()
	system.OneKeyAtOnce(t, system.Start(t, "WAKES=false"))
}
