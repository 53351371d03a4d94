package matchmaking_test

import (
	"fmt"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// Of those who are as near, whoever joined first is matched first, whether they are
// better, worse or the same; and in whichever order a pass looks at them.
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
					s.match("rank") // from here on only who joins looks for a partner
				}
				for i := range users {
					s.join(fmt.Sprint("u_any", i), "rank", fmt.Sprintf(`{"skill":%s}`, c.skill))
					if pass := s.match("rank"); len(pass.Matches) != 1 {
						t.Fatalf("%+v", pass)
					}
					for j := range users {
						if got := s.get(users[j], tickets[j]).Status; (got == matchmaking.Matched) != (j <= i) {
							t.Errorf("after %d matches %s is %s", i+1, users[j], got)
						}
					}
				}
			})
		}
	}
}

// counting is Lua that makes scripts count what they ask of Redis: the commands, and
// what these return.
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

// A match is as much work however many wait with the same skill.
func TestEqualSkillsCostTheSame(t *testing.T) {
	for _, c := range []struct{ what, skill string }{{"worse", "1550"}, {"better", "1450"}, {"the same", "1500"}} {
		t.Run(c.what, func(t *testing.T) {
			s := start(t)
			matchmaking.Plant(s.Store, func(source string) string { return counting + source })
			waiting := 0
			work := func(many int) int {
				t.Helper()
				for ; waiting < many; waiting++ {
					s.join(fmt.Sprint("u_", waiting), "rank", fmt.Sprintf(`{"skill":1500,"region":%d}`, waiting))
				}
				s.matchAll("rank", matchmaking.MaxPairs)
				s.join(fmt.Sprint("u_any", many), "rank", fmt.Sprintf(`{"skill":%s}`, c.skill))
				must(t, s.client.Del(t.Context(), "work").Err())
				if pass := s.match("rank"); len(pass.Matches) != 1 {
					t.Fatalf("%+v", pass)
				}
				n, err := s.client.Get(t.Context(), "work").Int()
				must(t, err)
				return n
			}
			// A pass sweeps up to 100 at the head of the queue, whoever they are.
			if few, many := work(150), work(1000); few != many {
				t.Errorf("%d among 150, %d among 1000", few, many)
			}
		})
	}
}
