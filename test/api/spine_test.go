package api_test

import (
	"net/http"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// The main job: somebody is granted something, and is told once, by wakes alone.
func TestGrantIsTold(t *testing.T) {
	t.Parallel()
	s := system.Start(t)
	a := s.Grant("k1", "u_1", "item1")
	if a.Status != http.StatusOK || a.JSON(t)["status"] != "ACTIVE" || a.Header.Get("ETag") != `"1"` {
		t.Fatalf("grant: %d %s %v", a.Status, a.Body, a.Header)
	}
	kit.Eventually(t, "the notification is SENT", func() bool {
		return s.Count(`SELECT count(*) FROM notification.notifications WHERE user_id = 'u_1' AND status = 'SENT'`) == 1
	})
	inbox := s.Call(http.MethodGet, "/debug/notification/inbox/u_1", s.Operator, "").JSON(t)["notifications"].([]any)
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
	s := system.Start(t, "WAKES=false")
	s.Grant("k1", "u_1", "item1")
	for _, function := range []string{"relay", "notify", "deliver"} {
		if report := s.Tick(function); report.Done != 1 {
			t.Fatalf("%s: %+v", function, report)
		}
	}
	if n := s.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`); n != 1 {
		t.Fatalf("%d notifications SENT", n)
	}
}

// 64 requests at once with one key have one effect, and all get the same answer.
func TestOneKeyAtOnce(t *testing.T) {
	t.Parallel()
	system.OneKeyAtOnce(t, system.Start(t, "WAKES=false"))
}
