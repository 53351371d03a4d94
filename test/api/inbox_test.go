package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

func wantSameTime(t testing.TB, a, b any) {
	t.Helper()
	first, err := time.Parse(time.RFC3339Nano, fmt.Sprint(a))
	kit.Must(t, err)
	second, err := time.Parse(time.RFC3339Nano, fmt.Sprint(b))
	kit.Must(t, err)
	if !first.Equal(second) {
		t.Errorf("the times %v and %v differ", a, b)
	}
}

// The inbox comes newest first, in pages, each notification once.
func TestInboxPages(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	const older = 149
	system.AtOnce(older, func(i int) { s.Grant(fmt.Sprint("k", i), "u_1", fmt.Sprint("item", i)) })
	s.Grant("other", "u_2", "item1")
	s.DeliverAll()
	s.Revoke("newest", "u_1", "item0")
	s.DeliverAll()

	seen, cursor := map[any]bool{}, ""
	var sizes []int
	for range 10 {
		page := s.Call(http.MethodGet, "/debug/notification/inbox/u_1?cursor="+cursor, s.Operator, "").JSON(t)
		if page["user_id"] != "u_1" {
			t.Fatalf("the page's user_id is %v, want u_1", page["user_id"])
		}
		list := page["notifications"].([]any)
		sizes = append(sizes, len(list))
		last := "9"
		for i, entry := range list {
			n := entry.(map[string]any)
			if cursor == "" && i == 0 && n["event_type"] != "EntitlementRevoked" {
				t.Errorf("the first notification is %v, want the revoke", n)
			}
			if n["payload"].(map[string]any)["user_id"] != "u_1" {
				t.Errorf("another user's notification: %v", n)
			}
			if at := n["created_at"].(string); at > last {
				t.Errorf("a notification of %s comes after one of %s", at, last)
			} else {
				last = at
			}
			if n["status"] != "SENT" || n["sent_at"] == nil || n["read_at"] != nil || n["attempt_count"] != 1.0 {
				t.Errorf("not delivered at the first attempt and unread: %v", n)
			}
			seen[n["notification_id"]] = true
		}
		if cursor, _ = page["next_cursor"].(string); cursor == "" {
			break
		}
	}
	if fmt.Sprint(sizes) != "[100 50]" || len(seen) != older+1 {
		t.Errorf("pages of %v with %d notifications, want [100 50]", sizes, len(seen))
	}
}

// Other users' inboxes are for operators only.
func TestInboxRole(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	path := "/debug/notification/inbox/u_1"
	system.WantProblem(t, s.Call(http.MethodGet, path, s.Writer, ""), http.StatusForbidden, "role_missing")
	system.WantProblem(t, s.Call(http.MethodGet, path, "", ""), http.StatusUnauthorized, "token_missing")
	a := s.Call(http.MethodGet, path, s.Operator, "")
	if a.Status != http.StatusOK || len(a.JSON(t)["notifications"].([]any)) != 0 {
		t.Errorf("an operator is answered %d %s, want an empty inbox", a.Status, a.Body)
	}
}

// Switched off, the debug inbox is answered like a route that never existed.
func TestInboxSwitchedOff(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false", "DEBUG_ENDPOINTS=false")
	nowhere := s.Call(http.MethodGet, "/debug/nothing", "", "")
	for name, token := range map[string]string{"operator": s.Operator, "writer": s.Writer, "nobody": ""} {
		a := s.Call(http.MethodGet, "/debug/notification/inbox/u_1", token, "")
		system.WantProblem(t, a, http.StatusNotFound, "route_not_found")
		if string(a.Body) != string(nowhere.Body) {
			t.Errorf("%s: answered %s, want %s", name, a.Body, nowhere.Body)
		}
	}
}
