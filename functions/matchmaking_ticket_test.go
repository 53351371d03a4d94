package functions_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A ticket is there for who has it, and by its id only.
func TestTicketOfWhom(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice, bob, ops := people.player(t, "alice"), people.player(t, "bob"), people.token(t, map[string]any{"sub": "ops"})
	ticketID := s.joined(alice, "casual", "k1", `{}`)
	before := s.queues()
	everyWay := func(token, id string, status int, code string) {
		t.Helper()
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			a := s.call(method, ticketPath(id), token, "")
			t.Run(fmt.Sprintf("%s %.40s", method, id), func(t *testing.T) { wantProblem(t, a, status, code) })
		}
	}
	for _, token := range []string{bob, ops, s.writer} {
		everyWay(token, ticketID, http.StatusNotFound, "ticket_not_found")
	}
	suffix := strings.TrimPrefix(ticketID, "casual_")
	user := s.userID(alice)
	for _, id := range []string{
		"x", "casual_", "casual", "_", suffix, "_" + suffix, "rank_" + suffix, "ranked_" + suffix, "m_" + suffix, "n_" + suffix, "Casual_" + suffix,
		"casual_" + strings.ToUpper(suffix), ticketID + "0", ticketID[:len(ticketID)-1], nudged(ticketID), "casual__" + suffix, "casual_" + suffix[1:], "casual_" + "8" + suffix[1:],
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
	wantProblem(t, s.call(http.MethodPut, ticketPath(ticketID), alice, `{}`), http.StatusMethodNotAllowed, "method_not_allowed")
	wantProblem(t, s.call(http.MethodGet, ticketListPath+"?user_id="+user, bob, ""), http.StatusUnprocessableEntity, "request_invalid")
	if list := s.call(http.MethodGet, ticketListPath, bob, ""); strings.TrimSpace(string(list.body)) != `{"tickets":[]}` {
		t.Errorf("bob has %s", list.body)
	}
	if after := s.queues(); after != before {
		t.Errorf("what was refused changed something:\n%s\n%s", before, after)
	}
	// What is another's answers as what is not there.
	theirs, none := s.call(http.MethodGet, ticketPath(ticketID), bob, ""), s.call(http.MethodGet, ticketPath(nudged(ticketID)), bob, "")
	if string(theirs.body) != string(none.body) {
		t.Errorf("an oracle: %s, %s", theirs.body, none.body)
	}
	// Cancelling may be repeated, and says what became of the ticket.
	joinedAgain := s.joinWith(alice, "casual", "k2", `{}`)
	wantProblem(t, joinedAgain, http.StatusConflict, "ticket_queued")
	if detail := fmt.Sprint(joinedAgain.json(t)["detail"]); !strings.Contains(detail, ticketID) {
		t.Errorf("%q does not name %s", detail, ticketID)
	}
	for range 3 {
		a := s.cancelTicket(alice, ticketID)
		if a.status != http.StatusOK || a.json(t)["status"] != "CANCELLED" || a.json(t)["ticket_id"] != ticketID {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	// The key that was refused was not used up.
	second := s.joined(alice, "casual", "k2", `{}`)
	s.joined(bob, "casual", "k1", `{}`)
	s.matchAll()
	for range 2 {
		wantProblem(t, s.cancelTicket(alice, second), http.StatusConflict, "ticket_matched")
	}
	if got := s.readTicket(alice, second); got["status"] != "MATCHED" {
		t.Errorf("%v", got)
	}
	if got := s.readTicket(alice, ticketID); got["status"] != "CANCELLED" || got["match_id"] != nil {
		t.Errorf("%v", got)
	}
	// Who is matched may wait again.
	wantStatus(t, s.joinWith(alice, "casual", "k3", `{}`), http.StatusCreated)
	s.wantWhole()
}
