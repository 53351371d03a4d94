package matchmaking_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A ticket that has expired reads EXPIRED at once; it is never matched, can be read for a
// while, and blocks nobody.
func TestTicketExpires(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false", "MATCHMAKING_TTL=1s")
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	first := s.JoinWith(alice, "casual", "k1", `{}`)
	system.WantStatus(t, first, http.StatusCreated)
	ticketID := first.JSON(t)["ticket_id"].(string)
	bobs := s.Joined(bob, "casual", "k1", `{}`)
	f := s.FollowAt(system.FollowPath(ticketID), alice)
	f.Shows("the ticket as expired", func(ticket map[string]any) bool { return ticket["status"] == "EXPIRED" })
	kit.Eventually(t, "bob's ticket expires too", func() bool { return s.ReadTicket(bob, bobs)["status"] == "EXPIRED" })
	if report := s.Tick("match"); report != (lease.Report{Claimed: 2, Dead: 2}) {
		t.Errorf("a pass over two expired tickets reports %+v, want both dead", report)
	}
	if report := s.Tick("match"); report != (lease.Report{}) {
		t.Errorf("the next pass reports %+v, want nothing", report)
	}
	for range 2 {
		if a := s.CancelTicket(alice, ticketID); a.Status != http.StatusOK || a.JSON(t)["status"] != "EXPIRED" {
			t.Errorf("cancelling an expired ticket answered %d %s, want 200 EXPIRED", a.Status, a.Body)
		}
	}
	system.WantReplay(t, first, s.JoinWith(alice, "casual", "k1", `{}`))
	again := s.Joined(alice, "casual", "k2", `{}`)
	s.Joined(bob, "casual", "k2", `{}`)
	if report := s.Tick("match"); report.Done != 2 || s.ReadTicket(alice, again)["status"] != "MATCHED" {
		t.Errorf("they join again and are not matched: %+v", report)
	}
	if got := s.ReadTicket(alice, ticketID); got["status"] != "EXPIRED" {
		t.Errorf("the first ticket is %v, want EXPIRED", got)
	}
	// It can be read for five more minutes; then it does not exist.
	client := s.QueueClient()
	defer client.Close()
	key := "mm:ticket:{casual}:" + ticketID
	if kept := client.PTTL(t.Context(), key).Val(); kept > 5*time.Minute || kept < 4*time.Minute {
		t.Errorf("the ticket is kept for %s, want five minutes", kept)
	}
	kit.Must(t, client.PExpire(t.Context(), key, 0).Err())
	system.WantProblem(t, s.Call(http.MethodGet, system.TicketPath(ticketID), alice, ""), http.StatusNotFound, "ticket_not_found")
	system.WantProblem(t, s.CancelTicket(alice, ticketID), http.StatusNotFound, "ticket_not_found")
	system.WantProblem(t, s.Call(http.MethodGet, system.FollowPath(ticketID), alice, ""), http.StatusNotFound, "ticket_not_found")
}

// A queue that is full of expired tickets soon accepts the next player: the join that it
// refuses wakes the matcher, which need not wait for its schedule.
func TestQueueFullOfExpired(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "MATCHMAKING_TTL=1s", "MATCHMAKING_QUEUE_LIMIT=2")
	for i := range 2 {
		token := people.Player(t, fmt.Sprint("player", i))
		ticketID := s.Joined(token, "rank", "k1", fmt.Sprintf(`{"skill":1,"region":%d}`, i))
		defer func() { // the second may still wait when the first has made room
			kit.Eventually(t, "a ticket that filled the queue is EXPIRED", func() bool { return s.ReadTicket(token, ticketID)["status"] == "EXPIRED" })
		}()
	}
	carol := people.Player(t, "carol")
	s.UserID(carol)
	kit.Eventually(t, "she joins the full queue without a tick", func() bool {
		a := s.JoinWith(carol, "rank", "k1", `{"skill":1,"region":"eu"}`)
		if a.Status != http.StatusCreated {
			system.WantProblem(t, a, http.StatusServiceUnavailable, "queue_full")
			kit.Pause(100 * time.Millisecond) // as a client retries
		}
		return a.Status == http.StatusCreated
	})
}
