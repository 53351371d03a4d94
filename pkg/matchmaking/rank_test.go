package matchmaking_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// player is a ticket of the model.
type player struct {
	user, ticket     string
	skill            int
	region, language string // "" fits everybody
	got              matchmaking.Ticket
}

func agrees(a, b string) bool { return a == "" || b == "" || a == b }

// fits is the rule, written down plainly: attributes agree, and the skills are
// within the wider of the two windows.
func fits(a, b player, agree int, windows []int, every time.Duration, now time.Time) bool {
	if agree > 0 && !agrees(a.region, b.region) || agree > 1 && !agrees(a.language, b.language) {
		return false
	}
	if windows == nil {
		return true
	}
	window := func(p player) int {
		return windows[min(int(now.Sub(p.got.CreatedAt)/every), len(windows)-1)]
	}
	return math.Abs(float64(a.skill-b.skill)) <= float64(max(window(a), window(b)))
}

// Against the rule, pair by pair: who was matched fits, and when a pass says that
// there is nothing more to do, no two who wait do.
func TestQueuesWithRulesMissNobody(t *testing.T) {
	const every = 300 * time.Millisecond
	windows := []int{10, 40, 160}
	for agree, names := range [][]string{nil, {"region"}, {"region", "language"}, {"region", "language", "latency_bucket"}} {
		for _, ranked := range []bool{true, false} {
			if agree == 0 && !ranked {
				continue
			}
			t.Run(fmt.Sprintf("%d agree, ranked %v", agree, ranked), func(t *testing.T) {
				s := start(t, func(r *matchmaking.Rules) {
					r.Modes = []matchmaking.Mode{{Name: "rank", Ranked: ranked, Agree: names}}
					r.Windows, r.WidenEvery = windows, every
				})
				random := rand.New(rand.NewPCG(uint64(agree), 42))
				var players []*player
				for round := range 12 {
					for range random.IntN(12) {
						p := &player{user: fmt.Sprint("u_", len(players)), skill: random.IntN(1500)}
						text := fmt.Sprintf(`{"skill":%d`, p.skill)
						if random.IntN(4) > 0 {
							p.region = fmt.Sprint("r", random.IntN(2))
							text += fmt.Sprintf(`,"region":%q`, p.region)
						}
						if random.IntN(4) > 0 {
							p.language = fmt.Sprint("l", random.IntN(2))
							text += fmt.Sprintf(`,"language":%q`, p.language)
						}
						p.ticket = s.join(p.user, "rank", text+"}")
						players = append(players, p)
					}
					for s.match("rank").More {
					}
					seen := time.Now()
					judge(s, players, agree, ranked, windows, every, seen)
					if round%3 == 2 {
						time.Sleep(every / 2) // windows widen by themselves
					}
				}
				noLeftovers(s, "mm:pool:")
			})
		}
	}
}

func judge(s setup, players []*player, agree int, ranked bool, windows []int, every time.Duration, seen time.Time) {
	s.t.Helper()
	if !ranked {
		windows = nil
	}
	byUser := map[string]*player{}
	var waiting []*player
	for _, p := range players {
		p.got = s.get(p.user, p.ticket)
		byUser[p.user] = p
		if p.got.Status == matchmaking.Queued {
			waiting = append(waiting, p)
		}
	}
	for _, p := range players {
		if p.got.Status != matchmaking.Matched {
			continue
		}
		peer := byUser[p.got.PeerUserIDs[0]]
		if !fits(*p, *peer, agree, windows, every, p.got.MatchedAt) {
			s.t.Errorf("matched %+v with %+v", *p, *peer)
		}
	}
	// A moment before the last pass began; a window may have widened since.
	then := seen.Add(-every / 4)
	for i, a := range waiting {
		for _, b := range waiting[:i] {
			if fits(*a, *b, agree, windows, every, then) {
				s.t.Errorf("%+v and %+v fit, and wait", *a, *b)
			}
		}
	}
}

// Who waits longest is matched first, even with somebody who is nearer to another.
func TestLongestWaitingFirst(t *testing.T) {
	s := start(t)
	old := s.join("u_old", "rank", `{"skill":1000}`)
	s.match("rank")
	young := s.join("u_young", "rank", `{"skill":1150}`)
	s.match("rank")
	s.join("u_new", "rank", `{"skill":1080}`)
	if pass := s.match("rank"); len(pass.Matches) != 1 {
		t.Fatalf("%+v", pass)
	}
	if a, b := s.get("u_old", old), s.get("u_young", young); a.Status != matchmaking.Matched || b.Status != matchmaking.Queued {
		t.Errorf("%s and %s", a.Status, b.Status)
	}
}

// Who has waited longer decides: a newcomer need not wait, too.
func TestTheWiderWindowDecides(t *testing.T) {
	s := start(t, func(r *matchmaking.Rules) { r.Windows, r.WidenEvery = []int{10, 1000}, 200*time.Millisecond })
	a := s.join("u_a", "rank", `{"skill":0}`)
	s.match("rank")
	eventually(t, "the window widens", func() bool {
		s.match("rank")
		return s.client.HGet(t.Context(), "mm:ticket:{rank}:"+a, "level").Val() == "1"
	})
	s.join("u_b", "rank", `{"skill":1000}`)
	if pass := s.match("rank"); len(pass.Matches) != 1 {
		t.Errorf("%+v", pass)
	}
}

// A number and a text are two values; 1 and 1.0 are one.
func TestValuesThatAgree(t *testing.T) {
	s := start(t)
	for i, c := range []struct {
		a, b string
		fit  bool
	}{
		{`{"region":1}`, `{"region":1.0}`, true}, {`{"region":1}`, `{"region":"1"}`, false}, {`{"region":"eu"}`, `{"region":"EU"}`, false},
		{`{"region":"eu"}`, `{}`, true}, {`{"region":"a=b&c"}`, `{"region":"a=b&c"}`, true}, {`{"region":""}`, `{}`, true},
		{`{"region":"{x}"}`, `{"region":"{x}"}`, true}, {`{"region":"é"}`, `{"region":"\u00e9"}`, true},
	} {
		a, b := fmt.Sprint("u_a", i), fmt.Sprint("u_b", i)
		one := s.join(a, "regional", c.a)
		two := s.join(b, "regional", c.b)
		if pass := s.match("regional"); (len(pass.Matches) == 1) != c.fit {
			t.Errorf("%s and %s: %+v", c.a, c.b, pass)
		}
		_, _, _ = s.Cancel(t.Context(), a, one)
		_, _, _ = s.Cancel(t.Context(), b, two)
	}
}
