package matchmaking_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// Two players in one queue are matched by wakes alone, and see it once, wherever they
// look: the ticket, the list, the overview, the inbox, the stream.
func TestMatchIsAnnounced(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t)
	tokens := []string{people.Player(t, "alice"), people.Player(t, "bob"), people.Player(t, "carol")}
	attributes := []string{`{"region":"eu","latency_bucket":2.5,"team.name_1-x":""}`, `{}`}
	users, streams, tickets := make([]string, 3), make([]*system.Follower, 3), make([]string, 2)
	for i, token := range tokens {
		users[i], streams[i] = s.UserID(token), s.Follow(token)
	}
	for i := range tickets {
		a := s.JoinWith(tokens[i], "casual", "k1", attributes[i])
		system.WantStatus(t, a, http.StatusCreated)
		got := a.JSON(t)
		if waits := time.Until(moment(t, got["expires_at"])); waits < 110*time.Second || waits > 130*time.Second || got["status"] != "QUEUED" || sortedNames(got) != "expires_at status ticket_id" {
			t.Errorf("joining answered %s, want a QUEUED ticket for two minutes", a.Body)
		}
		if a.Header["Idempotent-Replayed"] != nil {
			t.Error("the first answer is a replay")
		}
		tickets[i], _ = got["ticket_id"].(string)
		if !strings.HasPrefix(tickets[i], "casual_") {
			t.Errorf("ticket_id %q, want the prefix casual_", tickets[i])
		}
	}
	joined := time.Now()
	for _, f := range streams[:2] {
		f.Until(1)
	}
	t.Logf("from the second join's answer to both streams: %s", time.Since(joined))
	session := map[string]any{"server": "fixed", "address": "localhost", "ports": []any{map[string]any{"name": "game", "port": 7777.0}}}
	var both []map[string]any
	for i, ticketID := range tickets {
		got := s.ReadTicket(tokens[i], ticketID)
		both = append(both, got)
		if names := sortedNames(got); names != "attributes created_at expires_at match_id matched_at mode peer_user_ids session status ticket_id" {
			t.Errorf("a matched ticket has %s", names)
		}
		var sent map[string]any
		kit.Must(t, json.Unmarshal([]byte(attributes[i]), &sent))
		if got["status"] != "MATCHED" || got["mode"] != "casual" || got["ticket_id"] != ticketID || !reflect.DeepEqual(got["peer_user_ids"], []any{users[1-i]}) ||
			!reflect.DeepEqual(got["session"], any(session)) || !reflect.DeepEqual(got["attributes"], any(sent)) {
			t.Errorf("the ticket is %v", got)
		}
		if list := s.Call(http.MethodGet, system.TicketListPath, tokens[i], "").JSON(t); !reflect.DeepEqual(list, map[string]any{"tickets": []any{got}}) {
			t.Errorf("the list has %v, want the ticket", list)
		}
		o := system.WantOverview(t, s.Call(http.MethodGet, system.OverviewPath, tokens[i], ""), nil)
		if !reflect.DeepEqual(o["matchmaking"], any(map[string]any{"tickets": []any{got}})) {
			t.Errorf("the overview has %v, want the ticket", o["matchmaking"])
		}
	}
	if id, _ := both[0]["match_id"].(string); id != both[1]["match_id"] || !strings.HasPrefix(id, "m_") || both[0]["matched_at"] != both[1]["matched_at"] {
		t.Errorf("the two tickets are not of one match: %v and %v", both[0], both[1])
	}
	for i, ticketID := range tickets {
		inbox := s.Notifications(tokens[i], "MatchMade")
		if len(inbox) != 1 || inbox[0]["status"] != "SENT" {
			t.Fatalf("the inbox has %v, want one SENT notification", inbox)
		}
		payload := inbox[0]["payload"].(map[string]any)
		want := map[string]any{
			"event_id": inbox[0]["event_id"], "event_type": "MatchMade", "match_id": both[i]["match_id"], "mode": "casual", "occurred_at": both[i]["matched_at"],
			"user_id": users[i], "ticket_id": ticketID, "peer_user_ids": []any{users[1-i]}, "session": session,
		}
		if !reflect.DeepEqual(payload, want) {
			t.Errorf("notified %v\nwant %v", payload, want)
		}
		if live := streams[i].Named("notification"); len(live) != 1 || live[0]["notification_id"] != inbox[0]["notification_id"] {
			t.Errorf("the stream has %v, want the inbox's notification", live)
		}
	}
	if list := s.Notifications(tokens[2], "MatchMade"); len(list)+len(streams[2].Got()) != 0 {
		t.Errorf("carol got %v %v, want nothing", list, streams[2].Got())
	}
	// More ticks notify nobody again.
	for range 2 {
		matchAll(s)
		s.Tick("reconcile")
	}
	if n := s.Count(`SELECT count(*) FROM notification.notifications`); n != 2 {
		t.Errorf("%d notifications of one match, want 2", n)
	}
	wantWhole(s)
}

// Ranked players are matched by region and similar skill, and can read what they wait
// for.
func TestRankedPlayersMeet(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false", "MATCHMAKING_WINDOWS=100,200,400", "MATCHMAKING_WIDEN_EVERY=2s")
	tokens, tickets := map[string]string{}, map[string]string{}
	join := func(name, attributes string) {
		t.Helper()
		tokens[name] = people.Player(t, name)
		tickets[name] = s.Joined(tokens[name], "rank", "k1", attributes)
	}
	now := func(name string) map[string]any { return s.ReadTicket(tokens[name], tickets[name]) }
	join("eu", `{"skill":1500,"region":"eu"}`)
	if got := now("eu"); reason(got) != "alone" || got["position"] != 1.0 || got["estimated_wait_ms"] != nil {
		t.Errorf("alone in the queue, the ticket is %v", got)
	}
	join("us", `{"skill":1500,"region":"us"}`)
	matchAll(s)
	if reason(now("eu")) != "nobody_agrees" || reason(now("us")) != "nobody_agrees" {
		t.Errorf("different regions: %v, %v, want the reason nobody_agrees", now("eu"), now("us"))
	}
	join("far", `{"skill":1801,"region":"eu"}`) // more than two windows away
	matchAll(s)
	if got := now("far"); reason(got) != "skill_window" || got["position"] != 3.0 {
		t.Errorf("far away in skill, the ticket is %v", got)
	}
	// A player without a region fits any: of two players equally near, the first is
	// chosen.
	join("anywhere", `{"skill":1599.5}`)
	matchAll(s)
	one, two := now("eu"), now("anywhere")
	if one["status"] != "MATCHED" || one["match_id"] != two["match_id"] {
		t.Fatalf("the two are not matched: %v, %v", one, two)
	}
	if now("us")["status"] != "QUEUED" || now("far")["status"] != "QUEUED" {
		t.Errorf("the others are %v, %v, want QUEUED", now("us"), now("far"))
	}
	// Windows widen: 1801 and 1405 are 396 apart.
	join("further", `{"skill":1405,"region":"eu"}`)
	kit.Eventually(t, "the window is wide enough", func() bool { matchAll(s); return now("far")["status"] == "MATCHED" })
	if now("far")["match_id"] != now("further")["match_id"] || now("us")["status"] != "QUEUED" {
		t.Errorf("after the window widened: %v, %v", now("far"), now("us"))
	}
	if waits := now("us")["estimated_wait_ms"]; waits == nil {
		t.Error("four were matched, but there is no estimate of the wait")
	}
	if n := s.Count(`SELECT count(DISTINCT user_id) FROM notification.notifications WHERE event_type = 'MatchMade' AND payload->>'mode' = 'rank' AND status = 'SENT'`); n != 4 {
		t.Errorf("%d are notified, want 4", n)
	}
	wantWhole(s)
}
