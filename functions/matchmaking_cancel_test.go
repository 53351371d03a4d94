package functions_test

import (
	"fmt"
	"net/http"
	"testing"
)

// Cancelling and matching meet at any moment: what a request is told is what stays,
// and who has cancelled is told of no match.
func TestCancelOrMatch(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	const players = 40
	tokens, tickets, answers := make([]string, players), make([]string, players), make([]answer, players)
	atOnce(8, func(worker int) {
		for i := worker; i < players; i += 8 {
			tokens[i] = people.player(t, fmt.Sprint("player", i))
			tickets[i] = s.joined(tokens[i], "casual", "k1", `{}`)
		}
	})
	client := s.queueClient()
	defer client.Close()
	store := s.store(client)
	atOnce(6, func(worker int) {
		for i := worker; i < players; i += 6 { // both begin with those who have waited longest
			if i%3 == 0 {
				if _, err := store.Match(t.Context(), "casual", 1); err != nil {
					t.Error(err)
				}
			}
			answers[i] = s.cancelTicket(tokens[i], tickets[i])
		}
	})
	s.matchAll()
	outcomes := map[string]int{}
	for i, a := range answers {
		now := fmt.Sprint(s.readTicket(tokens[i], tickets[i])["status"])
		outcomes[now]++
		told := len(s.notifications(tokens[i], "MatchMade"))
		if a.status == http.StatusOK {
			if a.json(t)["status"] != "CANCELLED" || now != "CANCELLED" || told != 0 {
				t.Errorf("cancelled: %s; then %s, and told %d times", a.body, now, told)
			}
			continue
		}
		wantProblem(t, a, http.StatusConflict, "ticket_matched")
		if now != "MATCHED" || told != 1 {
			t.Errorf("matched: then %s, and told %d times", now, told)
		}
	}
	t.Logf("%v", outcomes)
	s.wantWhole()
}
