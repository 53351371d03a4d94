package functions_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/lease"
)

// A ticket whose time is over is EXPIRED to whoever looks, at once; it is never
// matched, can be read for a while, and stands in nobody's way.
func TestTicketExpires(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false", "MATCHMAKING_TTL=1s")
	alice, bob := people.player(t, "alice"), people.player(t, "bob")
	first := s.joinWith(alice, "casual", "k1", `{}`)
	wantStatus(t, first, http.StatusCreated)
	ticketID := first.json(t)["ticket_id"].(string)
	bobs := s.joined(bob, "casual", "k1", `{}`)
	f := s.followAt(followPath(ticketID), alice)
	f.shows("that it has expired", func(ticket map[string]any) bool { return ticket["status"] == "EXPIRED" })
	eventually(t, queuePatience, "bob's expires, too", func() bool { return s.readTicket(bob, bobs)["status"] == "EXPIRED" })
	if report := s.tick("match"); report != (lease.Report{Claimed: 2, Dead: 2}) {
		t.Errorf("a pass over two that have expired: %+v", report)
	}
	if report := s.tick("match"); report != (lease.Report{}) {
		t.Errorf("the next pass: %+v", report)
	}
	for range 2 {
		if a := s.cancelTicket(alice, ticketID); a.status != http.StatusOK || a.json(t)["status"] != "EXPIRED" {
			t.Errorf("cancelled when it is too late: %d %s", a.status, a.body)
		}
	}
	wantReplay(t, first, s.joinWith(alice, "casual", "k1", `{}`))
	again := s.joined(alice, "casual", "k2", `{}`)
	s.joined(bob, "casual", "k2", `{}`)
	if report := s.tick("match"); report.Done != 2 || s.readTicket(alice, again)["status"] != "MATCHED" {
		t.Errorf("they join again: %+v", report)
	}
	if got := s.readTicket(alice, ticketID); got["status"] != "EXPIRED" {
		t.Errorf("%v", got)
	}
	// It can be read for five minutes more; then there is none.
	client := s.queueClient()
	defer client.Close()
	key := "mm:ticket:{casual}:" + ticketID
	if kept := client.PTTL(t.Context(), key).Val(); kept > 5*time.Minute || kept < 4*time.Minute {
		t.Errorf("it is kept for %s", kept)
	}
	must(t, client.PExpire(t.Context(), key, 0).Err())
	wantProblem(t, s.call(http.MethodGet, ticketPath(ticketID), alice, ""), http.StatusNotFound, "ticket_not_found")
	wantProblem(t, s.cancelTicket(alice, ticketID), http.StatusNotFound, "ticket_not_found")
	wantProblem(t, s.call(http.MethodGet, followPath(ticketID), alice, ""), http.StatusNotFound, "ticket_not_found")
}

// A queue that is full of tickets whose time is over takes the next player soon: the
// join that it refuses wakes the matcher, which need not wait for its schedule.
func TestQueueFullOfExpired(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "MATCHMAKING_TTL=1s", "MATCHMAKING_QUEUE_LIMIT=2")
	for i := range 2 {
		token := people.player(t, fmt.Sprint("player", i))
		ticketID := s.joined(token, "rank", "k1", fmt.Sprintf(`{"skill":1,"region":%d}`, i))
		defer func() {
			if got := s.readTicket(token, ticketID)["status"]; got != "EXPIRED" {
				t.Errorf("a ticket that filled the queue is %v", got)
			}
		}()
	}
	carol := people.player(t, "carol")
	s.userID(carol)
	eventually(t, queuePatience, "the queue is full, and then she joins without any tick", func() bool {
		a := s.joinWith(carol, "rank", "k1", `{"skill":1,"region":"eu"}`)
		if a.status != http.StatusCreated {
			wantProblem(t, a, http.StatusServiceUnavailable, "queue_full")
			time.Sleep(100 * time.Millisecond) // as a client that is told to
		}
		return a.status == http.StatusCreated
	})
}
