package matchmaking_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// A plain queue matches its tickets two by two, in the order in which they joined.
func TestFirstComeFirstServed(t *testing.T) {
	s := start(t)
	c := s.clock()
	var tickets []string
	for i := range 7 {
		tickets = append(tickets, s.join(fmt.Sprint("u_", i), "casual", `{}`))
		c.pass(time.Second)
	}
	if got := s.get("u_6", tickets[6]); got.Position != 7 || got.EstimatedWaitMS != nil {
		t.Errorf("the last ticket is %+v with %+v, want position 7 and no estimate", got, got.Waiting)
	}
	pass := s.match("casual")
	if len(pass.Matches) != 3 || pass.Depth != 1 || pass.Expired != 0 || pass.Oldest != time.Second || pass.More {
		t.Fatalf("the pass did %+v, want 3 matches and 1 ticket that has waited 1s", pass)
	}
	for i, m := range pass.Matches {
		a, b := fmt.Sprint("u_", 2*i), fmt.Sprint("u_", 2*i+1)
		one, two := s.get(a, tickets[2*i]), s.get(b, tickets[2*i+1])
		if one.MatchID != m.ID || two.MatchID != m.ID || one.PeerUserIDs[0] != b || two.PeerUserIDs[0] != a || one.Session != nil || one.SessionError != "" {
			t.Errorf("match %d: the tickets have %+v and %+v, want each other in %s", i, one.Made, two.Made, m.ID)
		}
		if want := time.Duration(7-2*i) * time.Second; m.Waited != [2]time.Duration{want, want - time.Second} || one.MatchedAt.Sub(one.CreatedAt) != want {
			t.Errorf("match %d: waited %v, %v; want %v first", i, m.Waited, one.MatchedAt.Sub(one.CreatedAt), want)
		}
	}
	left := s.get("u_6", tickets[6])
	if left.Status != matchmaking.Queued || left.Position != 1 || left.Made != nil {
		t.Errorf("the ticket that is left is %+v with %+v, want it QUEUED at position 1", left, left.Waiting)
	}
	// The matched tickets had waited 2 to 7 s.
	if ms := left.EstimatedWaitMS; ms == nil || *ms < 2000 || *ms > 7000 {
		t.Errorf("the estimate is %v, want 2000 to 7000 ms", ms)
	}
	c.pass(11 * time.Minute)
	late := s.join("u_7", "casual", `{}`)
	if ms := s.get("u_7", late).EstimatedWaitMS; ms != nil {
		t.Errorf("the estimate is %d ms, want none: the matches are too old", *ms)
	}
	s.noLeftovers("due", "pool")
}

// A user is never matched with themselves, even if they have two tickets because Redis
// lost a key.
func TestNotWithThemselves(t *testing.T) {
	s := start(t)
	for _, mode := range s.Modes() {
		for i := range 3 {
			s.joinAs("u_a", mode, fmt.Sprint(i), `{"skill":1}`)
			kit.Must(t, s.client.Del(t.Context(), "mm:active:{"+mode+"}:u_a").Err())
		}
		for range 2 {
			if pass := s.match(mode); len(pass.Matches) != 0 || pass.Depth != 3 {
				t.Errorf("%s: the pass did %+v, want no match and 3 tickets", mode, pass)
			}
		}
		s.join("u_b", mode, `{"skill":1}`)
		if pass := s.match(mode); len(pass.Matches) != 1 {
			t.Errorf("%s: with another user the pass did %+v, want 1 match", mode, pass)
		}
	}
}
