package functions_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// named are the events of a stream with a name, as JSON.
func (f *follower) named(name string) (list []map[string]any) {
	f.t.Helper()
	for _, e := range f.got() {
		if e.name == name {
			var v map[string]any
			must(f.t, json.Unmarshal([]byte(e.data), &v))
			list = append(list, v)
		}
	}
	return list
}

// shows waits until the last ticket event of a stream is as it should be.
func (f *follower) shows(what string, ok func(ticket map[string]any) bool) map[string]any {
	f.t.Helper()
	var last map[string]any
	eventually(f.t, queuePatience, what, func() bool {
		if list := f.named("ticket"); len(list) > 0 {
			last = list[len(list)-1]
		}
		return last != nil && ok(last)
	})
	return last
}

// Who waits sees on the live stream how it goes, until it is over. What is told of
// a ticket has no id: a client that comes back goes on from the last notification.
func TestTicketIsFollowed(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice, bob := people.player(t, "alice"), people.player(t, "bob")
	user := s.userID(alice)
	ticketID := s.joined(alice, "casual", "k1", `{}`)
	f := s.followAt(followPath(ticketID), alice)
	eventually(t, queuePatience, "the stream has a position", func() bool { return f.position() != "" })
	position := f.position()
	first := f.shows("at once, that she is alone", func(ticket map[string]any) bool { return reason(ticket) == "alone" })
	if first["status"] != "QUEUED" || first["position"] != 1.0 || first["ticket_id"] != ticketID {
		t.Errorf("%v", first)
	}
	s.joined(bob, "casual", "k1", `{}`)
	f.shows("that somebody fits", func(ticket map[string]any) bool {
		return reason(ticket) == "next_pass" || reason(ticket) == "matcher_late"
	})
	s.tick("match")
	waits := f.shows("that she is matched, and no server yet", func(ticket map[string]any) bool { return ticket["status"] == "MATCHED" })
	if session, there := waits["session"]; !there || session != nil {
		t.Errorf("before a server is found the session is %v", session)
	}
	s.tick("announce")
	last := f.shows("where to meet", func(ticket map[string]any) bool { return ticket["session"] != nil })
	if !reflect.DeepEqual(last, s.readTicket(alice, ticketID)) {
		t.Errorf("the stream has %v", last)
	}
	if f.position() != position || len(f.named("notification")) != 0 {
		t.Errorf("Last-Event-ID was %q and is %q", position, f.position())
	}
	s.tick("notify")
	s.tick("deliver")
	eventually(t, queuePatience, "the notification", func() bool { return len(f.named("notification")) == 1 })
	if told := f.named("notification")[0]["notification_id"]; f.position() != told {
		t.Errorf("Last-Event-ID is %q, and she was told %v", f.position(), told)
	}
	f.hangUp()

	// The next ticket, cancelled by another request while she is granted something.
	ticketID = s.joined(alice, "casual", "k2", `{}`)
	f = s.followAt(followPath(ticketID), alice)
	f.shows("that she waits", func(ticket map[string]any) bool { return ticket["status"] == "QUEUED" })
	s.grant("g1", user, "item1")
	s.tellAll()
	eventually(t, queuePatience, "the grant", func() bool { return len(f.named("notification")) == 1 })
	position = f.position()
	if a := s.cancelTicket(alice, ticketID); a.status != http.StatusOK || a.json(t)["status"] != "CANCELLED" {
		t.Errorf("%d %s", a.status, a.body)
	}
	f.shows("that it is cancelled", func(ticket map[string]any) bool { return ticket["status"] == "CANCELLED" })
	if f.position() != position || !strings.HasPrefix(position, "n_") {
		t.Errorf("Last-Event-ID was %q and is %q", position, f.position())
	}
	f.hangUp()
	s.grant("g2", user, "item2")
	s.tellAll()
	back := s.followAt(followPath(ticketID), alice, "Last-Event-ID: "+position)
	back.shows("once more, that it is cancelled", func(ticket map[string]any) bool { return ticket["status"] == "CANCELLED" })
	eventually(t, queuePatience, "what came meanwhile", func() bool {
		return slices.ContainsFunc(back.got(), func(e streamEvent) bool { return strings.Contains(e.data, `"item2"`) })
	})
	// What has ended is told once, and the stream goes on for notifications.
	s.grant("g3", user, "item3")
	s.tellAll()
	eventually(t, queuePatience, "what comes then", func() bool {
		return slices.ContainsFunc(back.got(), func(e streamEvent) bool { return strings.Contains(e.data, `"item3"`) })
	})
	if list := back.named("ticket"); len(list) != 1 {
		t.Errorf("an end is told %d times", len(list))
	}

	for name, token := range map[string]string{"another's": bob, "an operator's": people.token(t, map[string]any{"sub": "ops"})} {
		a := s.call(http.MethodGet, followPath(ticketID), token, "")
		t.Run(name, func(t *testing.T) { wantProblem(t, a, http.StatusNotFound, "ticket_not_found") })
	}
	for _, id := range []string{"x", "casual_", "n_" + ticketID[7:], "rank" + ticketID[6:], nudged(ticketID)} {
		wantProblem(t, s.call(http.MethodGet, followPath(id), alice, ""), http.StatusNotFound, "ticket_not_found")
	}
	wantProblem(t, s.call(http.MethodGet, followPath(strings.Repeat("x", 65)), alice, ""), http.StatusUnprocessableEntity, "request_invalid")
}

// A stream asks each second whether its ticket has ended, and seldom why it has not:
// that is a script, which holds up Redis for all who sign in, join and are limited.
func TestFollowingIsCheap(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice := people.player(t, "alice")
	f := s.followAt(followPath(s.joined(alice, "rank", "k1", `{"skill":1500,"region":"eu"}`)), alice)
	f.shows("that she waits", func(ticket map[string]any) bool { return ticket["status"] == "QUEUED" })
	client := s.queueClient()
	defer client.Close()
	calls := func(command string) (n int) {
		_, text, _ := strings.Cut(client.Info(t.Context(), "commandstats").Val(), "cmdstat_"+command+":calls=")
		text, _, _ = strings.Cut(text, ",")
		n, _ = strconv.Atoi(text) // 0 before the first
		return n
	}
	const looks = 4
	began, scripts := calls("hmget"), calls("evalsha")
	eventually(t, queuePatience, "it looks again and again", func() bool { return calls("hmget") >= began+looks })
	if more := calls("evalsha") - scripts; more > 1 {
		t.Errorf("%d looks were %d scripts, want 1 at most", looks, more)
	}
}
