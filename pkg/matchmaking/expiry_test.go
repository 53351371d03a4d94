package matchmaking_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// A ticket whose time is over is matched with nobody, reads EXPIRED before and after the
// next pass, and counts as expired once. The clock is that of Redis itself.
func TestExpired(t *testing.T) {
	s := start(t, func(r *matchmaking.Rules) { r.TTL = time.Second })
	for _, mode := range s.Modes() {
		a := s.join("u_a", mode, `{"skill":100,"region":"eu"}`)
		kit.Eventually(t, "the ticket expires", func() bool { return s.get("u_a", a).Status == matchmaking.Expired })
		b := s.join("u_b", mode, `{"skill":100,"region":"eu"}`)
		if pass := s.match(mode); pass.Expired != 1 || len(pass.Matches) != 0 || pass.Depth != 1 {
			t.Errorf("%s: the pass did %+v, want no match, 1 expired and 1 waiting", mode, pass)
		}
		if pass := s.match(mode); pass.Expired != 0 {
			t.Errorf("%s: the next pass did %+v, want none expired", mode, pass)
		}
		if ticket, cancelled, err := s.Cancel(t.Context(), "u_a", a); err != nil || cancelled || ticket.Status != matchmaking.Expired || ticket.Waiting != nil {
			t.Errorf("%s: cancelled %v: %+v, %v", mode, cancelled, ticket, err)
		}
		if ticket := s.get("u_b", b); ticket.Status != matchmaking.Queued {
			t.Errorf("%s: the other ticket is %+v, want it QUEUED", mode, ticket)
		}
		if again := s.joinAs("u_a", mode, "another key", `{"skill":9000,"region":"us"}`); again == a {
			t.Errorf("%s: a new join returned the expired ticket", mode)
		}
		s.noLeftovers("due", "pool")
	}
}

// A ticket can be matched until the last millisecond before it expires, and not after.
func TestExpiresAt(t *testing.T) {
	s := start(t)
	c := s.clock()
	for _, mode := range s.Modes() {
		for _, early := range []time.Duration{time.Millisecond, 0} {
			one, two := fmt.Sprint("u_a", early), fmt.Sprint("u_b", early)
			a := s.join(one, mode, `{"skill":1}`)
			c.pass(2*time.Minute - early)
			b := s.join(two, mode, `{"skill":1}`)
			pass := s.match(mode)
			if early > 0 && (len(pass.Matches) != 1 || pass.Expired != 0) || early == 0 && (len(pass.Matches) != 0 || pass.Expired != 1 || s.get(one, a).Status != matchmaking.Expired) {
				t.Errorf("%s: %s before: %+v, %s and %s", mode, early, pass, s.get(one, a).Status, s.get(two, b).Status)
			}
		}
	}
}

// Passes sweep expired tickets while matching is paused, too.
func TestExpiryWhilePaused(t *testing.T) {
	s := start(t)
	c := s.clock()
	matchmaking.Plant(s.Store, func(source string) string {
		return strings.Replace(clockwork(source), "redis.call('XLEN', events) >= backlog", "true", 1)
	})
	for _, mode := range s.Modes() {
		s.join("u_a", mode, `{"skill":1}`)
		s.join("u_b", mode, `{"skill":1}`)
		if pass := s.match(mode); len(pass.Matches) != 0 || pass.Expired != 0 || pass.Depth != 2 {
			t.Errorf("%s: paused, the pass did %+v, want no match, none expired and 2 waiting", mode, pass)
		}
	}
	c.pass(2 * time.Minute)
	for _, mode := range s.Modes() {
		if pass := s.match(mode); pass.Expired != 2 || pass.Depth != 0 {
			t.Errorf("%s: paused, the pass did %+v, want 2 expired and an empty queue", mode, pass)
		}
	}
	s.noLeftovers("due", "pool")
}

// A pass that swept as many tickets as it may reports that there is more, even if no
// ticket is due: otherwise expired tickets stand in the way of others for hours.
func TestExpiredAreSweptWithoutAPause(t *testing.T) {
	const many, fewPairs = 100, 4
	for _, paused := range []bool{false, true} {
		for _, mode := range queues().Modes {
			t.Run(fmt.Sprintf("%s, paused: %v", mode.Name, paused), func(t *testing.T) {
				s := start(t)
				c := s.clock()
				for i := range many {
					s.join(fmt.Sprint("u_", i), mode.Name, fmt.Sprintf(`{"skill":1,"region":"r%d","language":"l"}`, i))
				}
				matchmaking.Plant(s.Store, func(source string) string {
					source = strings.Replace(clockwork(source), "redis.call('XLEN', events) >= backlog", fmt.Sprint(paused), 1)
					return strings.Replace(source, "first.user ~= ticket.user", "false", 1) // all stay
				})
				for range 3 { // to the widest window: no ticket is due any more
					s.matchAll(mode.Name, matchmaking.MaxPairs)
					c.pass(5 * time.Second)
				}
				c.pass(2 * time.Minute)
				if _, expired := s.matchAll(mode.Name, fewPairs); expired != many {
					t.Errorf("%d of %d were swept when a pass reported nothing more to do", expired, many)
				}
				s.noLeftovers("due", "pool")
			})
		}
	}
}

// When a pass reports nothing more to do, all tickets that fit are matched, even if it met
// many expired ones.
func TestManyExpiredHideNobody(t *testing.T) {
	for _, mode := range []string{"casual", "rank", "regional"} {
		t.Run(mode, func(t *testing.T) {
			s := start(t)
			c := s.clock()
			const many = 300
			regions := func(i int) string { return fmt.Sprintf(`{"skill":%d,"region":"eu"}`, 1000*(i%2)) }
			for i := range many {
				// All belong to one user, so that they do not match each other.
				s.joinAs("u_old", mode, fmt.Sprint(i), regions(0))
				kit.Must(t, s.client.Del(t.Context(), "mm:active:{"+mode+"}:u_old").Err())
			}
			for range 4 {
				s.matchAll(mode, matchmaking.MaxPairs)
				c.pass(5 * time.Second)
			}
			c.pass(2 * time.Minute)
			a, b := s.join("u_a", mode, regions(0)), s.join("u_b", mode, regions(0))
			matches, _ := s.matchAll(mode, matchmaking.MaxPairs)
			if len(matches) != 1 {
				t.Errorf("%d matches when there was nothing more to do, want 1: the tickets are %s and %s", len(matches), s.get("u_a", a).Status, s.get("u_b", b).Status)
			}
		})
	}
}
