package matchmaking_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// A ticket is visible to its owner only, and by its exact id only.
func TestTicketOfWhom(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice, bob, ops := people.Player(t, "alice"), people.Player(t, "bob"), people.Token(t, map[string]any{"sub": "ops"})
	ticketID := s.Joined(alice, "casual", "k1", `{}`)
	before := s.Queues()
	everyWay := func(token, id string, status int, code string) {
		t.Helper()
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			a := s.Call(method, system.TicketPath(id), token, "")
			t.Run(fmt.Sprintf("%s %.40s", method, id), func(t *testing.T) { system.WantProblem(t, a, status, code) })
		}
	}
	for _, token := range []string{bob, ops, s.Writer} {
		everyWay(token, ticketID, http.StatusNotFound, "ticket_not_found")
	}
	suffix := strings.TrimPrefix(ticketID, "casual_")
	user := s.UserID(alice)
	for _, id := range []string{
		"x", "casual_", "casual", "_", suffix, "_" + suffix, "rank_" + suffix, "ranked_" + suffix, "m_" + suffix, "n_" + suffix, "Casual_" + suffix,
		"casual_" + strings.ToUpper(suffix), ticketID + "0", ticketID[:len(ticketID)-1], system.UnusedID(ticketID), "casual__" + suffix, "casual_" + suffix[1:], "casual_" + "8" + suffix[1:],
		"casual_zzzzzzzzzzzzzzzzzzzzzzzzzz", "casual_00000000000000000000000000", "casual_" + strings.Replace(suffix, "0", "o", 1), "casual%20" + suffix, ticketID + "%20", "%20" + ticketID,
		ticketID + "%0A", "casual%7D:x_" + suffix, "*", "%7Bcasual%7D:" + ticketID, user, "casual:" + user, ticketID + "%2F", "..%2F" + ticketID, "%F0%9F%92%A5", strings.Repeat("x", 64), "casual_" + strings.Repeat("0", 57),
	} {
		everyWay(alice, id, http.StatusNotFound, "ticket_not_found")
	}
	everyWay(alice, strings.Repeat("x", 65), http.StatusUnprocessableEntity, "request_invalid")
	everyWay(alice, strings.Repeat("x", 2000), http.StatusUnprocessableEntity, "request_invalid")
	everyWay(alice, "casual_%00", http.StatusBadRequest, "url_invalid")
	everyWay(alice, "%ff", http.StatusBadRequest, "url_invalid")
	everyWay(alice, ticketID+"?x=1", http.StatusUnprocessableEntity, "request_invalid")
	everyWay(alice, "", http.StatusNotFound, "route_not_found")
	everyWay("", ticketID, http.StatusUnauthorized, "token_missing")
	system.WantProblem(t, s.Call(http.MethodPut, system.TicketPath(ticketID), alice, `{}`), http.StatusMethodNotAllowed, "method_not_allowed")
	system.WantProblem(t, s.Call(http.MethodGet, system.TicketListPath+"?user_id="+user, bob, ""), http.StatusUnprocessableEntity, "request_invalid")
	if list := s.Call(http.MethodGet, system.TicketListPath, bob, ""); strings.TrimSpace(string(list.Body)) != `{"tickets":[]}` {
		t.Errorf("bob's list is %s, want no tickets", list.Body)
	}
	if after := s.Queues(); after != before {
		t.Errorf("refused requests changed the queues:\n%s\n%s", before, after)
	}
	// Another user's ticket is answered like one that does not exist.
	theirs, none := s.Call(http.MethodGet, system.TicketPath(ticketID), bob, ""), s.Call(http.MethodGet, system.TicketPath(system.UnusedID(ticketID)), bob, "")
	if string(theirs.Body) != string(none.Body) {
		t.Errorf("the answers for another's ticket and for none differ: %s, %s", theirs.Body, none.Body)
	}
	// Cancelling may be repeated, and its answer has the ticket's state.
	joinedAgain := s.JoinWith(alice, "casual", "k2", `{}`)
	system.WantProblem(t, joinedAgain, http.StatusConflict, "ticket_queued")
	if detail := fmt.Sprint(joinedAgain.JSON(t)["detail"]); !strings.Contains(detail, ticketID) {
		t.Errorf("%q does not name %s", detail, ticketID)
	}
	for range 3 {
		a := s.CancelTicket(alice, ticketID)
		if a.Status != http.StatusOK || a.JSON(t)["status"] != "CANCELLED" || a.JSON(t)["ticket_id"] != ticketID {
			t.Errorf("cancelling answered %d %s, want 200 CANCELLED", a.Status, a.Body)
		}
	}
	// A key that was refused can be used.
	second := s.Joined(alice, "casual", "k2", `{}`)
	s.Joined(bob, "casual", "k1", `{}`)
	matchAll(s)
	for range 2 {
		system.WantProblem(t, s.CancelTicket(alice, second), http.StatusConflict, "ticket_matched")
	}
	if got := s.ReadTicket(alice, second); got["status"] != "MATCHED" {
		t.Errorf("the second ticket is %v, want MATCHED", got)
	}
	if got := s.ReadTicket(alice, ticketID); got["status"] != "CANCELLED" || got["match_id"] != nil {
		t.Errorf("the first ticket is %v, want CANCELLED without a match", got)
	}
	// A matched player may join again.
	system.WantStatus(t, s.JoinWith(alice, "casual", "k3", `{}`), http.StatusCreated)
	wantWhole(s)
}
