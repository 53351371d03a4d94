package matchmaking_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// Rules that cannot work are refused before anything runs, all faults in one line.
func TestRulesThatAreRefused(t *testing.T) {
	t.Parallel()
	if err := queues().Check(); err != nil {
		t.Fatal(err)
	}
	type rules = matchmaking.Rules
	mode := func(m ...matchmaking.Mode) func(*rules) { return func(r *rules) { r.Modes = m } }
	for _, c := range []struct {
		change func(*rules)
		want   string
	}{
		{mode(), "no mode"},
		{mode(matchmaking.Mode{Name: ""}), `not ""`},
		{mode(matchmaking.Mode{Name: "Casual"}), `not "Casual"`},
		{mode(matchmaking.Mode{Name: "a_b"}), `not "a_b"`},
		{mode(matchmaking.Mode{Name: "a}b"}), `not "a}b"`},
		{mode(matchmaking.Mode{Name: "a\n"}), "letters"},
		{mode(matchmaking.Mode{Name: strings.Repeat("a", 33)}), "letters"},
		{mode(matchmaking.Mode{Name: "a"}, matchmaking.Mode{Name: "b"}, matchmaking.Mode{Name: "a"}), "a is there twice"},
		{mode(matchmaking.Mode{Name: "a", Agree: []string{"a", "b", "c", "d"}}), "at most 3"},
		{mode(matchmaking.Mode{Name: "a", Agree: []string{"x", "x"}}), `"x" is there twice`},
		{mode(matchmaking.Mode{Name: "a", Agree: []string{"x y"}}), `"x y" is not the name`},
		{mode(matchmaking.Mode{Name: "a", Agree: []string{""}}), `"" is not the name`},
		{func(r *rules) { r.TTL = time.Second - 1 }, "waits 1s to 1h"},
		{func(r *rules) { r.TTL = time.Hour + 1 }, "waits 1s to 1h"},
		{func(r *rules) { r.Windows = nil }, "not 0"},
		{func(r *rules) { r.Windows = []int{1, 2, 3, 4, 5, 6, 7, 8, 9} }, "not 9"},
		{func(r *rules) { r.Windows = []int{-1} }, "narrow to wide"},
		{func(r *rules) { r.Windows = []int{1, 1} }, "narrow to wide"},
		{func(r *rules) { r.Windows = []int{2, 1} }, "narrow to wide"},
		{func(r *rules) { r.WidenEvery = 100*time.Millisecond - 1 }, "100ms at least"},
		{func(r *rules) { r.QueueLimit = 1 }, "2 tickets at least"},
	} {
		r := queues()
		c.change(&r)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Check returned %v, want %q in one line", err, c.want)
		}
	}
	all := matchmaking.Rules{}
	if err := all.Check(); err == nil || strings.Count(err.Error(), ";") != 4 {
		t.Errorf("Check returned %v, want 5 faults", err)
	}
}

// Rules at their limits are accepted.
func TestRulesAtTheirLimits(t *testing.T) {
	t.Parallel()
	r := matchmaking.Rules{
		Modes: []matchmaking.Mode{{Name: strings.Repeat("z", 32), Ranked: true, Agree: []string{"a", "b", "c"}}},
		TTL:   time.Hour, Windows: []int{0, 1, 2, 3, 4, 5, 6, 7}, WidenEvery: 100 * time.Millisecond, QueueLimit: 2,
	}
	for _, ttl := range []time.Duration{time.Hour, time.Second} {
		r.TTL = ttl
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestModesOfSettings(t *testing.T) {
	t.Parallel()
	modes, err := matchmaking.NewModes([]string{"casual", "rank", "duo"}, []string{"rank"}, map[string]string{"rank": "region", "duo": "region+language"})
	if err != nil || fmt.Sprintf("%+v", modes) != "[{Name:casual Ranked:false Agree:[]} {Name:rank Ranked:true Agree:[region]} {Name:duo Ranked:false Agree:[region language]}]" {
		t.Errorf("the modes are %+v, %v; want casual, rank and duo", modes, err)
	}
	for _, c := range []struct {
		ranked []string
		agree  map[string]string
	}{{[]string{"chess"}, nil}, {nil, map[string]string{"chess": "region"}}} {
		if _, err := matchmaking.NewModes([]string{"casual"}, c.ranked, c.agree); err == nil || !strings.Contains(err.Error(), `"chess"`) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
