package matchmaking_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// The ticket that waits longest is matched first, even with one that is nearer to another.
func TestLongestWaitingFirst(t *testing.T) {
	for _, c := range []struct {
		what, mode         string
		first, second, new string
	}{
		{"on both sides", "rank", `{"skill":1000}`, `{"skill":1150}`, `{"skill":1080}`},
		{"of different pools", "rank", `{"skill":1000,"region":"eu"}`, `{"skill":1000,"region":"us"}`, `{"skill":1000}`},
		{"without skill", "regional", `{"region":"us","language":"de"}`, `{"region":"eu","language":"de"}`, `{"language":"de"}`},
		{"without anything", "regional", `{"region":"us"}`, `{"region":"eu","language":"de"}`, `{}`},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := start(t)
			clock := s.clock()
			first := s.join("u_first", c.mode, c.first)
			clock.pass(time.Second)
			second := s.join("u_second", c.mode, c.second)
			if pass := s.match(c.mode); len(pass.Matches) != 0 {
				t.Fatalf("the first two do not fit, but the pass did %+v", pass)
			}
			clock.pass(time.Second)
			s.join("u_new", c.mode, c.new)
			if pass := s.match(c.mode); len(pass.Matches) != 1 || pass.Matches[0].Waited != [2]time.Duration{2 * time.Second, 0} {
				t.Fatalf("the pass did %+v, want 1 match, of a ticket that waited 2s with the new one", pass)
			}
			if a, b := s.get("u_first", first), s.get("u_second", second); a.Status != matchmaking.Matched || b.Status != matchmaking.Queued {
				t.Errorf("the first ticket is %s and the second %s, want MATCHED and QUEUED", a.Status, b.Status)
			}
		})
	}
}

// Of the tickets that are due at once, the one that waits longest looks for a partner
// first.
func TestLongestWaitingLooksFirst(t *testing.T) {
	s := start(t)
	c := s.clock()
	old := s.join("u_old", "rank", `{"skill":1000}`)
	c.pass(time.Second)
	young := s.join("u_young", "rank", `{"skill":1200}`)
	c.pass(time.Second)
	s.join("u_new", "rank", `{"skill":1100}`)
	if pass := s.match("rank"); len(pass.Matches) != 1 {
		t.Fatalf("the pass did %+v, want 1 match", pass)
	}
	if a, b := s.get("u_old", old), s.get("u_young", young); a.Status != matchmaking.Matched || b.Status != matchmaking.Queued {
		t.Errorf("the old ticket is %s and the young one %s, want MATCHED and QUEUED", a.Status, b.Status)
	}
}

// The wider of two windows decides, so a new ticket fits one that has waited long. A
// window widens exactly at its time, and the last one stays.
func TestTheWiderWindowDecides(t *testing.T) {
	s := start(t)
	c := s.clock()
	for level, width := range []int{100, 200, 400, 400} {
		old := fmt.Sprint("u_old", level)
		ticket := s.join(old, "rank", `{"skill":1000}`)
		for range level {
			s.match("rank")
			c.pass(5*time.Second - time.Millisecond)
			if level < 3 {
				s.match("rank") // a millisecond early
			}
			c.pass(time.Millisecond)
		}
		beyond := fmt.Sprint("u_beyond", level)
		far := s.join(beyond, "rank", fmt.Sprintf(`{"skill":%d}`, 1000+width+1))
		if pass := s.match("rank"); len(pass.Matches) != 0 {
			t.Errorf("window %d: matched at %d: %+v", level, width+1, pass)
		}
		s.cancel(beyond, far)
		s.join(fmt.Sprint("u_new", level), "rank", fmt.Sprintf(`{"skill":%d}`, 1000-width))
		if pass := s.match("rank"); len(pass.Matches) != 1 || s.get(old, ticket).Status != matchmaking.Matched {
			t.Errorf("window %d: not matched at %d: %+v", level, width, pass)
		}
	}
	// Two that wait are matched once the older one's window is wide enough; nobody joins.
	s.join("u_a", "rank", `{"skill":1000}`)
	c.pass(2 * time.Second)
	s.join("u_b", "rank", `{"skill":1150}`)
	for _, wait := range []time.Duration{0, 3*time.Second - time.Millisecond} {
		c.pass(wait)
		if pass := s.match("rank"); len(pass.Matches) != 0 {
			t.Errorf("after %s the pass did %+v, want no match", wait, pass)
		}
	}
	c.pass(time.Millisecond)
	if pass := s.match("rank"); len(pass.Matches) != 1 {
		t.Errorf("once the window is wide enough the pass did %+v, want 1 match", pass)
	}
}
