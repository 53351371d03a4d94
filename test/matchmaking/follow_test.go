package matchmaking_test

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A waiting player follows their ticket on the live stream until it ends. Ticket events
// have no id: a client that comes back resumes from the last notification.
func TestTicketIsFollowed(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	user := s.UserID(alice)
	ticketID := s.Joined(alice, "casual", "k1", `{}`)
	f := s.FollowAt(system.FollowPath(ticketID), alice)
	kit.Eventually(t, "the stream has a position", func() bool { return f.Position() != "" })
	position := f.Position()
	first := f.Shows("at once, that she is alone", func(ticket map[string]any) bool { return reason(ticket) == "alone" })
	if first["status"] != "QUEUED" || first["position"] != 1.0 || first["ticket_id"] != ticketID {
		t.Errorf("the first ticket event is %v, want QUEUED at position 1", first)
	}
	s.Joined(bob, "casual", "k1", `{}`)
	f.Shows("that somebody fits", func(ticket map[string]any) bool {
		return reason(ticket) == "next_pass" || reason(ticket) == "matcher_late"
	})
	s.Tick("match")
	waits := f.Shows("that she is matched, and no server yet", func(ticket map[string]any) bool { return ticket["status"] == "MATCHED" })
	if session, there := waits["session"]; !there || session != nil {
		t.Errorf("before a server is allocated the session is %v, want null", session)
	}
	s.Tick("announce")
	last := f.Shows("where to meet", func(ticket map[string]any) bool { return ticket["session"] != nil })
	if !reflect.DeepEqual(last, s.ReadTicket(alice, ticketID)) {
		t.Errorf("the stream has %v, want the ticket as it reads", last)
	}
	if f.Position() != position || len(f.Named("notification")) != 0 {
		t.Errorf("Last-Event-ID was %q and is %q", position, f.Position())
	}
	s.Tick("notify")
	s.Tick("deliver")
	kit.Eventually(t, "the notification", func() bool { return len(f.Named("notification")) == 1 })
	if id := f.Named("notification")[0]["notification_id"]; f.Position() != id {
		t.Errorf("Last-Event-ID is %q, want that of the notification, %v", f.Position(), id)
	}
	f.HangUp()

	// The next ticket, cancelled by another request while she is granted something.
	ticketID = s.Joined(alice, "casual", "k2", `{}`)
	f = s.FollowAt(system.FollowPath(ticketID), alice)
	f.Shows("that she waits", func(ticket map[string]any) bool { return ticket["status"] == "QUEUED" })
	s.Grant("g1", user, "item1")
	s.DeliverAll()
	kit.Eventually(t, "the grant", func() bool { return len(f.Named("notification")) == 1 })
	position = f.Position()
	if a := s.CancelTicket(alice, ticketID); a.Status != http.StatusOK || a.JSON(t)["status"] != "CANCELLED" {
		t.Errorf("cancelling answered %d %s, want 200 CANCELLED", a.Status, a.Body)
	}
	f.Shows("that it is cancelled", func(ticket map[string]any) bool { return ticket["status"] == "CANCELLED" })
	if f.Position() != position || !strings.HasPrefix(position, "n_") {
		t.Errorf("Last-Event-ID was %q and is %q", position, f.Position())
	}
	f.HangUp()
	s.Grant("g2", user, "item2")
	s.DeliverAll()
	back := s.FollowAt(system.FollowPath(ticketID), alice, "Last-Event-ID: "+position)
	back.Shows("once more, the ticket as cancelled", func(ticket map[string]any) bool { return ticket["status"] == "CANCELLED" })
	kit.Eventually(t, "the notification from meanwhile", func() bool {
		return slices.ContainsFunc(back.Got(), func(e system.StreamEvent) bool { return strings.Contains(e.Data, `"item2"`) })
	})
	// A ticket's end is delivered once, and the stream continues with notifications.
	s.Grant("g3", user, "item3")
	s.DeliverAll()
	kit.Eventually(t, "the next notification", func() bool {
		return slices.ContainsFunc(back.Got(), func(e system.StreamEvent) bool { return strings.Contains(e.Data, `"item3"`) })
	})
	if list := back.Named("ticket"); len(list) != 1 {
		t.Errorf("the end of the ticket is delivered %d times, want 1", len(list))
	}

	for name, token := range map[string]string{"another's": bob, "an operator's": people.Token(t, map[string]any{"sub": "ops"})} {
		a := s.Call(http.MethodGet, system.FollowPath(ticketID), token, "")
		t.Run(name, func(t *testing.T) { system.WantProblem(t, a, http.StatusNotFound, "ticket_not_found") })
	}
	for _, id := range []string{"x", "casual_", "n_" + ticketID[7:], "rank" + ticketID[6:], system.UnusedID(ticketID)} {
		system.WantProblem(t, s.Call(http.MethodGet, system.FollowPath(id), alice, ""), http.StatusNotFound, "ticket_not_found")
	}
	system.WantProblem(t, s.Call(http.MethodGet, system.FollowPath(strings.Repeat("x", 65)), alice, ""), http.StatusUnprocessableEntity, "request_invalid")
}

// A stream asks every second whether its ticket has ended, but rarely why it has not:
// that runs a script, which holds up Redis for every sign-in, join and limit.
func TestFollowingIsCheap(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice := people.Player(t, "alice")
	f := s.FollowAt(system.FollowPath(s.Joined(alice, "rank", "k1", `{"skill":1500,"region":"eu"}`)), alice)
	f.Shows("that she waits", func(ticket map[string]any) bool { return ticket["status"] == "QUEUED" })
	client := s.QueueClient()
	defer client.Close()
	calls := func(command string) (n int) {
		_, text, _ := strings.Cut(client.Info(t.Context(), "commandstats").Val(), "cmdstat_"+command+":calls=")
		text, _, _ = strings.Cut(text, ",")
		n, _ = strconv.Atoi(text) // 0 before the first
		return n
	}
	const looks = 4
	began, scripts := calls("getrange"), calls("evalsha")
	kit.Eventually(t, "the stream looks again and again", func() bool { return calls("getrange") >= began+looks })
	if more := calls("evalsha") - scripts; more > 1 {
		t.Errorf("%d looks were %d scripts, want 1 at most", looks, more)
	}
}
