package matchmaking_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Of players equally near in skill, the one that joined first is matched first: whether
// they are better, worse or the same, and in whichever order a pass looks at them.
func TestEqualSkillsFirstComeFirstServed(t *testing.T) {
	for _, c := range []struct{ what, skill string }{{"worse", "1599.5"}, {"better", "1400.25"}, {"the same", "1500"}} {
		for _, looked := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, looked at before: %v", c.what, looked), func(t *testing.T) {
				s := start(t)
				var users, tickets []string
				for _, region := range []string{"eu", "us", "asia", "oceania"} {
					users = append(users, "u_"+region)
					tickets = append(tickets, s.join("u_"+region, "rank", fmt.Sprintf(`{"skill":1500,"region":%q}`, region)))
				}
				if looked {
					s.match("rank") // from now on only new tickets look for a partner
				}
				for i := range users {
					s.join(fmt.Sprint("u_any", i), "rank", fmt.Sprintf(`{"skill":%s}`, c.skill))
					if pass := s.match("rank"); len(pass.Matches) != 1 {
						t.Fatalf("the pass did %+v, want 1 match", pass)
					}
					for j := range users {
						if got := s.get(users[j], tickets[j]).Status; (got == matchmaking.Matched) != (j <= i) {
							t.Errorf("after %d matches %s is %s; want the first %d to be MATCHED", i+1, users[j], got, i+1)
						}
					}
				}
			})
		}
	}
}

// The clock of Redis decides which ticket came first, not that of the process that took
// the request: clocks of processes differ.
func TestEqualSkillsByTheClockOfRedis(t *testing.T) {
	for what, skill := range map[string]string{"worse": "1599.5", "better": "1400.25", "the same": "1500"} {
		t.Run(what, func(t *testing.T) {
			s := start(t)
			c := s.clock()
			c.pass(time.Second)
			second := s.join("u_second", "rank", `{"skill":1500,"region":"us"}`)
			c.pass(-time.Second) // the process's clock does not go back
			first := s.join("u_first", "rank", `{"skill":1500,"region":"eu"}`)
			c.pass(2 * time.Second)
			s.matchAll("rank", matchmaking.MaxPairs)
			s.join("u_any", "rank", fmt.Sprintf(`{"skill":%s}`, skill))
			if pass := s.match("rank"); len(pass.Matches) != 1 {
				t.Fatalf("%d matches, want 1: %+v", len(pass.Matches), pass)
			}
			if a, b := s.get("u_first", first).Status, s.get("u_second", second).Status; a != matchmaking.Matched || b != matchmaking.Queued {
				t.Errorf("the first by Redis' clock is %s, the second %s", a, b)
			}
			if first >= second {
				t.Errorf("the ids do not sort by Redis' clock: %s, then %s", first, second)
			}
		})
	}
}

// Of equal skills the ticket that waits longest is matched, however many expired tickets
// stand before it; not the one that a pass happens to see.
func TestEqualSkillsBehindManyExpired(t *testing.T) {
	for what, skill := range map[string]string{"worse": "1599.5", "better": "1400.25", "the same": "1500"} {
		t.Run(what, func(t *testing.T) {
			s := start(t)
			c := s.clock()
			join := func(user string) string {
				return s.join(user, "rank", fmt.Sprintf(`{"skill":1500,"region":%q}`, user))
			}
			widen := func() {
				for range 3 { // to the widest window: no ticket is due any more
					s.matchAll("rank", matchmaking.MaxPairs)
					c.pass(5 * time.Second)
				}
			}
			for i := range 60 {
				join(fmt.Sprint("u_over", i))
			}
			widen()
			c.pass(time.Minute)
			first := join("u_first")
			c.pass(time.Second)
			second := join("u_second")
			widen()
			c.pass(time.Minute)
			s.join("u_any", "rank", fmt.Sprintf(`{"skill":%s}`, skill))
			const fewPairs = 4 // the sweep leaves expired tickets for the search to meet
			if matches, _ := s.matchAll("rank", fewPairs); len(matches) != 1 {
				t.Fatalf("%d matches, want 1", len(matches))
			}
			if a, b := s.get("u_first", first).Status, s.get("u_second", second).Status; a != matchmaking.Matched || b != matchmaking.Queued {
				t.Errorf("the longest-waiting is %s, the other %s", a, b)
			}
		})
	}
}

// counting is Lua that makes a script count its work in Redis: the commands, and the
// values that they return.
const counting = `
local real = redis
local function counted(call)
	return function(...)
		local answer = call(...)
		real.call('INCRBY', 'work', type(answer) == 'table' and 1 + #answer or 1)
		return answer
	end
end
local redis = setmetatable({ call = counted(real.call), pcall = counted(real.pcall) }, { __index = real })
`

// A match costs the same work however many tickets wait with the same skill.
func TestEqualSkillsCostTheSame(t *testing.T) {
	for _, c := range []struct{ what, skill string }{{"worse", "1550"}, {"better", "1450"}, {"the same", "1500"}} {
		t.Run(c.what, func(t *testing.T) {
			s := start(t)
			clock := s.clock() // no window widens meanwhile, however slow the machine
			matchmaking.Plant(s.Store, func(source string) string { return counting + clockwork(source) })
			waiting := 0
			work := func(many int) int {
				t.Helper()
				for ; waiting < many; waiting++ {
					s.join(fmt.Sprint("u_", waiting), "rank", fmt.Sprintf(`{"skill":1500,"region":%d}`, waiting))
					clock.pass(time.Millisecond)
				}
				s.matchAll("rank", matchmaking.MaxPairs)
				s.join(fmt.Sprint("u_any", many), "rank", fmt.Sprintf(`{"skill":%s}`, c.skill))
				kit.Must(t, s.client.Del(t.Context(), "work").Err())
				if pass := s.match("rank"); len(pass.Matches) != 1 {
					t.Fatalf("the pass did %+v, want 1 match", pass)
				}
				n, err := s.client.Get(t.Context(), "work").Int()
				kit.Must(t, err)
				return n
			}
			// A pass always looks at the first 100 tickets of the queue, to sweep them.
			if few, many := work(150), work(1000); few != many {
				t.Errorf("a match costs %d among 150 tickets and %d among 1000, want the same", few, many)
			}
		})
	}
}
