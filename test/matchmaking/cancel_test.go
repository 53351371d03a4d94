package matchmaking_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/system"
)

// Cancelling and matching meet at any moment: the answer to a request stays true, and a
// player who has cancelled is notified of no match.
func TestCancelOrMatch(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	const players = 40
	tokens, tickets, answers := make([]string, players), make([]string, players), make([]system.Answer, players)
	system.AtOnce(8, func(worker int) {
		for i := worker; i < players; i += 8 {
			tokens[i] = people.Player(t, fmt.Sprint("player", i))
			tickets[i] = s.Joined(tokens[i], "casual", "k1", `{}`)
		}
	})
	client := s.QueueClient()
	defer client.Close()
	store := store(s, client)
	system.AtOnce(6, func(worker int) {
		for i := worker; i < players; i += 6 { // cancelling and matching both begin with the oldest tickets
			if i%3 == 0 {
				if _, err := store.Match(t.Context(), "casual", 1); err != nil {
					t.Error(err)
				}
			}
			answers[i] = s.CancelTicket(tokens[i], tickets[i])
		}
	})
	matchAll(s)
	outcomes := map[string]int{}
	for i, a := range answers {
		now := fmt.Sprint(s.ReadTicket(tokens[i], tickets[i])["status"])
		outcomes[now]++
		notified := len(s.Notifications(tokens[i], "MatchMade"))
		if a.Status == http.StatusOK {
			if a.JSON(t)["status"] != "CANCELLED" || now != "CANCELLED" || notified != 0 {
				t.Errorf("cancelling answered %s; now %s, and notified %d times", a.Body, now, notified)
			}
			continue
		}
		system.WantProblem(t, a, http.StatusConflict, "ticket_matched")
		if now != "MATCHED" || notified != 1 {
			t.Errorf("cancelling answered that it is matched; now %s, and notified %d times", now, notified)
		}
	}
	t.Logf("%v", outcomes)
	wantWhole(s)
}

// A player who joins and cancels for ever has a quota for it, and what that leaves in
// Redis is gone after a minute.
func TestJoinAndCancelForEver(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice := people.Patient(t, "alice")
	s.UserID(alice)
	const burst = 100
	passed, began := 0, time.Now()
	var refused system.Answer
	for refused.Status == 0 && passed < 3*burst {
		a := s.JoinWith(alice, "rank", fmt.Sprint("k", passed), `{"skill":1500}`)
		if a.Status == http.StatusTooManyRequests {
			refused = a
			break
		}
		system.WantStatus(t, a, http.StatusCreated)
		system.WantStatus(t, s.CancelTicket(alice, a.JSON(t)["ticket_id"].(string)), http.StatusOK)
		passed++
	}
	system.WantProblem(t, refused, http.StatusTooManyRequests, "rate_limited")
	// One token is refilled a second; while Redis does not answer in time, the process
	// counts alone.
	if most := 2*burst + int(time.Since(began)/time.Second) + 1; passed < burst || passed > most {
		t.Errorf("%d joins passed, want %d to %d", passed, burst, most)
	}
	if policy := strings.Join(refused.Header.Values("RateLimit-Policy"), " "); !strings.Contains(policy, `"join-queue";q=100;w=100`) || refused.Header.Get("Retry-After") == "" {
		t.Errorf("RateLimit-Policy or Retry-After is missing: %v", refused.Header)
	}
	system.WantStatus(t, s.Call(http.MethodGet, system.TicketListPath, alice, ""), http.StatusOK)
	client := s.QueueClient()
	defer client.Close()
	keys := 0
	for _, kind := range []string{"ticket", "idemp", "active"} {
		for _, key := range client.Keys(t.Context(), "mm:"+kind+":*").Val() {
			keys++
			if kept := client.PTTL(t.Context(), key).Val(); kept > time.Minute {
				t.Errorf("%s is kept for %s, want a minute at most", key, kept)
			}
		}
	}
	if keys == 0 {
		t.Error("nothing is kept for a retry")
	}
}
