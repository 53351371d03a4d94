package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/test/kit"
)

// A CloudEvent in binary mode, with percent-encoded attributes in headers, is the same
// event as in structured mode.
func (s *scene) binary() string {
	event := func(kind string) *http.Request {
		return s.ask(http.MethodPost, fn.EventsPath, s.writer, changeBody("u_binary", "item1", "p_1"),
			"Ce-Specversion: 1.0", "Ce-Id: "+kind+"%20%E2%82%AC", "Ce-Source: /binary", "Ce-Type: purchase."+kind)
	}
	s.purchase(event("completed"), event("refunded"))
	again := s.send(s.envelope("completed", "completed €", "/binary", "u_binary"))
	again.want(s.t, http.StatusOK)
	if again.header.Get("Idempotent-Replayed") != "true" {
		s.t.Errorf("the id was not decoded: %v %s", again.header, again.body)
	}
	return "200"
}

// The same in structured mode, as one JSON object.
func (s *scene) structured() string {
	s.purchase(s.envelope("completed", "1", "/structured", "u_structured"), s.envelope("refunded", "2", "/structured", "u_structured"))
	return "200"
}

func (s *scene) envelope(kind, id, source, user string) *http.Request {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{
		"specversion": "1.0", "id": id, "source": source, "type": "purchase." + kind,
		"datacontenttype": "application/json", "data": json.RawMessage(changeBody(user, "item1", "p_1")),
	})
	kit.Must(s.t, err)
	return s.ask(http.MethodPost, fn.EventsPath, s.writer, string(body), "Content-Type: application/cloudevents+json; charset=UTF-8")
}

func (s *scene) purchase(completed, refunded *http.Request) {
	s.t.Helper()
	for i, sent := range []*http.Request{completed, refunded} {
		a := s.send(sent)
		a.want(s.t, http.StatusOK)
		if want := []string{"ACTIVE", "REVOKED"}[i]; a.json(s.t)["status"] != want || a.header.Get("ETag") != fmt.Sprintf(`"%d"`, i+1) {
			s.t.Errorf("event %d: answered %v %s, want %s at version %d", i+1, a.header, a.body, want, i+1)
		}
	}
}

// Ticks alone carry a grant to a notification that is SENT, once.
func (s *scene) ticks() string {
	s.send(s.grant("ticks", "u_ticks", "item1")).want(s.t, http.StatusOK)
	by := s.carry("u_ticks")
	a := s.send(s.ask(http.MethodGet, "/debug/notification/inbox/u_ticks", s.ops, ""))
	a.want(s.t, http.StatusOK)
	if inbox := a.json(s.t)["notifications"].([]any); len(inbox) != 1 || inbox[0].(map[string]any)["status"] != "SENT" {
		s.t.Errorf("the inbox is %s, want one notification that is SENT", a.body)
	}
	return by
}

// carry ticks until the user's notification is SENT, or waits where the process ticks by
// itself, and returns which.
func (s *scene) carry(user string) (by string) {
	s.t.Helper()
	by, tick := "by its own schedule", func() {}
	if s.adapter.Ticked {
		by, tick = "by ticks from outside", func() {
			for _, function := range []string{"relay", "notify", "deliver"} {
				kit.Must(s.t, s.instance.Tick(function))
			}
		}
	}
	kit.Eventually(s.t, "the notification is SENT", func() bool {
		tick()
		return s.count(`SELECT count(*) FROM notification.notifications WHERE user_id = $1 AND status = 'SENT'`, user) == 1
	})
	return by
}
