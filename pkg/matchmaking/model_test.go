package matchmaking_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// player is a ticket of the model.
type player struct {
	user, ticket string
	skill        float64
	values       map[string]string // of attributes that must agree, as JSON
	got          matchmaking.Ticket
}

// text returns the attributes as JSON, as clients send them.
func (p *player) text() string {
	pairs := []string{fmt.Sprintf(`"skill":%v`, p.skill)}
	for name, value := range p.values {
		pairs = append(pairs, fmt.Sprintf(`%q:%s`, name, value))
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

func (p *player) String() string {
	return fmt.Sprintf("%s (%s, since %s)", p.user, p.text(), p.got.CreatedAt.Format("04:05.000"))
}

// model is the rule of a queue, written plainly.
type model struct {
	agree   []string
	windows []int // nil where skill does not count
	skills  int   // skills are 0 to skills-1
	every   time.Duration
}

// window returns how far in skill a player looks at the given time.
func (m model) window(p *player, at time.Time) float64 {
	return float64(m.windows[min(int(at.Sub(p.got.CreatedAt)/m.every), len(m.windows)-1)])
}

// fit reports whether two players may be matched at the given time: the attributes that
// both have are the same, and the skills are within the wider of the two windows.
func (m model) fit(a, b *player, at time.Time) bool {
	for _, name := range m.agree {
		one, inA := a.values[name]
		two, inB := b.values[name]
		if inA && inB && one != two {
			return false
		}
	}
	return m.windows == nil || math.Abs(a.skill-b.skill) <= max(m.window(a, at), m.window(b, at))
}

func (m model) player(random *rand.Rand, n int) *player {
	p := &player{user: fmt.Sprint("u_", n), values: map[string]string{}}
	p.skill = float64(random.IntN(m.skills))
	if random.IntN(5) == 0 {
		p.skill += 0.5
	}
	values := []string{`"a"`, `"b"`, `1`, `"1"`}
	for _, name := range m.agree {
		if random.IntN(3) > 0 {
			p.values[name] = values[random.IntN(len(values))]
		}
	}
	return p
}

func (m model) history(s setup, random *rand.Rand) {
	c := s.clock()
	var all, waiting []*player
	matched := 0
	for range 30 {
		for range random.IntN(8) {
			p := m.player(random, len(all))
			p.ticket = s.join(p.user, "m", p.text())
			p.got = s.get(p.user, p.ticket)
			all, waiting = append(all, p), append(waiting, p)
			c.pass(time.Duration(random.IntN(300)) * time.Millisecond)
		}
		if len(waiting) > 0 && random.IntN(3) == 0 {
			p := waiting[random.IntN(len(waiting))]
			if _, _, err := s.Cancel(s.t.Context(), p.user, p.ticket); err != nil {
				s.t.Fatal(err)
			}
		}
		s.matchAll("m", 1+random.IntN(30))
		waiting = waiting[:0]
		for _, p := range all {
			if p.got.Status == matchmaking.Queued {
				p.got = s.get(p.user, p.ticket)
			}
			if p.got.Status == matchmaking.Queued {
				waiting = append(waiting, p)
			}
		}
		matched += m.judge(s, all, waiting, c.now())
		c.pass([]time.Duration{0, 999 * time.Millisecond, 1700 * time.Millisecond, 5 * time.Second}[random.IntN(4)])
	}
	if matched < len(all)/10 {
		s.t.Errorf("%d of %d were matched, want %d at least", matched, len(all), len(all)/10)
	}
	s.noLeftovers("due", "pool")
}

// judge compares the tickets with the model and returns how many are matched.
func (m model) judge(s setup, all, waiting []*player, now time.Time) int {
	s.t.Helper()
	matched := 0
	byUser := map[string]*player{}
	for _, p := range all {
		byUser[p.user] = p
	}
	for _, p := range all {
		if p.got.Status != matchmaking.Matched {
			continue
		}
		matched++
		if peer := byUser[p.got.PeerUserIDs[0]]; peer == p || !m.fit(p, peer, p.got.MatchedAt) {
			s.t.Errorf("%s and %s were matched, but do not fit", p, peer)
		}
	}
	for i, a := range waiting {
		if !now.Before(a.got.ExpiresAt) {
			s.t.Errorf("%s is QUEUED, but its time is over", a)
		}
		for _, b := range waiting[:i] {
			if m.fit(a, b, now) {
				s.t.Errorf("%s and %s fit, but still wait", a, b)
			}
		}
	}
	return matched
}

// The store agrees with the model, pair by pair: matched players fit, and when a pass
// reports nothing more to do, no two waiting players fit. Players join, leave and expire
// at random times.
func TestQueuesWithRulesMissNobody(t *testing.T) {
	for _, c := range []struct {
		agree   []string
		windows []int
	}{
		{nil, []int{100, 200, 400}},
		{nil, []int{0}},
		{nil, []int{0, 3, 10, 30, 100, 300, 1000, 3000}},
		{[]string{"region"}, nil},
		{[]string{"region"}, []int{50, 500}},
		{[]string{"region", "language"}, nil},
		{[]string{"region", "language"}, []int{30, 100, 300}},
		{[]string{"region", "language", "pad"}, nil},
		{[]string{"region", "language", "pad"}, []int{100, 1000}},
	} {
		t.Run(fmt.Sprintf("%d agree, windows %v", len(c.agree), c.windows), func(t *testing.T) {
			m := model{c.agree, c.windows, 2000, 5 * time.Second}
			if len(c.windows) == 1 {
				m.skills = 30
			}
			s := start(t, func(r *matchmaking.Rules) {
				r.Modes = []matchmaking.Mode{{Name: "m", Ranked: c.windows != nil, Agree: c.agree}}
				if c.windows != nil {
					r.Windows = c.windows
				}
				r.TTL, r.WidenEvery = 40*time.Second, m.every
			})
			for seed := range uint64(3) {
				kit.Must(t, s.client.FlushAll(t.Context()).Err())
				m.history(s, rand.New(rand.NewPCG(seed, 42)))
				if t.Failed() {
					t.Fatalf("the failures are of seed %d", seed)
				}
			}
		})
	}
}
