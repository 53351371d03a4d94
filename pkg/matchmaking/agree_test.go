package matchmaking_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Two tickets agree when their values are the same: a number never equals a text, but 1
// equals 1.0.
func TestValuesThatAgree(t *testing.T) {
	s := start(t)
	for i, c := range []struct {
		a, b string
		meet bool
	}{
		{`1`, `1.0`, true},
		{`1`, `1e0`, true},
		{`100`, `1e2`, true},
		{`0`, `-0`, true},
		{`0.1`, `0.10`, true},
		{`1`, `"1"`, false},
		{`1`, `2`, false},
		{`999999999999999`, `999999999999998`, false},
		{`0.1`, `0.10000000000000001`, true},
		{`0.1`, `0.1000001`, false},
		{`1e-300`, `0`, false},
		{`"eu"`, `"EU"`, false},
		{`"eu"`, `"eu "`, false},
		{`""`, `""`, true},
		{`""`, `" "`, false},
		{`"é"`, `"\u00e9"`, true},
		{`"é"`, `"e\u0301"`, false},
		{`"a=b&c"`, `"a=b&c"`, true},
		{`"{x}"`, `"{x}"`, true},
		{`"null"`, `"null"`, true},
		{`"<"`, `"\u003c"`, true},
		{`":member"`, `":member"`, true},
	} {
		a, b := fmt.Sprint("u_a", i), fmt.Sprint("u_b", i)
		one, two := s.join(a, "regional", `{"region":`+c.a+`}`), s.join(b, "regional", `{"region":`+c.b+`}`)
		if pass := s.match("regional"); (len(pass.Matches) == 1) != c.meet {
			t.Errorf("%s and %s: matched %v, want %v: %+v", c.a, c.b, !c.meet, c.meet, pass)
		}
		_, _, _ = s.Cancel(t.Context(), a, one)
		_, _, _ = s.Cancel(t.Context(), b, two)
	}
	s.noLeftovers("due", "pool")
}

// Callers may send any value. No value is mistaken for another one, nor for the name of a
// pool, which is made of values.
func TestValuesAreNotMixedUp(t *testing.T) {
	s := start(t)
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{`"`, `\`, "=", "&", ":", "{", "}", "member", "asker", "neither", "region", "language", "%", "1", " ", ",", "'", "ü", `="x"&language=`, "<", "\u2044"}
	value := func() string {
		text := ""
		for range random.IntN(4) {
			text += pieces[random.IntN(len(pieces))]
		}
		return text
	}
	for i := range 150 {
		sent := [2]map[string]string{{}, {}}
		for j := range sent {
			if random.IntN(4) > 0 {
				sent[j]["region"] = value()
			}
			if random.IntN(4) > 0 {
				sent[j]["language"] = value()
			}
		}
		if random.IntN(3) == 0 { // the values are rarely the same otherwise
			sent[1] = maps.Clone(sent[0])
		}
		meet := true
		for _, name := range []string{"region", "language"} {
			a, inA := sent[0][name]
			b, inB := sent[1][name]
			meet = meet && (!inA || !inB || a == b)
		}
		var tickets [2]string
		for j := range sent {
			text, err := json.Marshal(sent[j])
			kit.Must(t, err)
			tickets[j] = s.joinAs(fmt.Sprint("u_", j), "regional", fmt.Sprint(i), string(text))
		}
		if pass := s.match("regional"); (len(pass.Matches) == 1) != meet {
			t.Errorf("%q: %d matches, want %v", sent, len(pass.Matches), meet)
		}
		for j := range sent {
			_, _, _ = s.Cancel(t.Context(), fmt.Sprint("u_", j), tickets[j])
		}
	}
	s.noLeftovers("due", "pool")
}

// A ticket without an attribute fits every value of it, whichever others must agree.
func TestLeftOutFitsEverybody(t *testing.T) {
	names := []string{"region", "language", "pad"}
	s := start(t, func(r *matchmaking.Rules) {
		r.Modes = nil
		for n := range names {
			r.Modes = append(r.Modes, matchmaking.Mode{Name: strings.Repeat("m", n+1), Agree: names[:n+1]})
		}
	})
	for _, mode := range s.Modes() {
		n := len(mode)
		// Each attribute is left out by either ticket, or the same in both, or different.
		for sides := range 1 << (2 * n) {
			for differ := range n + 1 {
				var texts [2][]string
				meet := true
				for i := range n {
					has := [2]bool{sides>>(2*i)&1 == 1, sides>>(2*i+1)&1 == 1}
					for j := range texts {
						value := 0
						if differ == i && j == 1 {
							value = 1
						}
						if has[j] {
							texts[j] = append(texts[j], fmt.Sprintf(`%q:%d`, names[i], value))
						}
					}
					meet = meet && (differ != i || !has[0] || !has[1])
				}
				var tickets [2]string
				for j := range texts {
					tickets[j] = s.joinAs(fmt.Sprint("u_", j), mode, fmt.Sprint(sides, "-", differ), "{"+strings.Join(texts[j], ",")+"}")
				}
				if pass := s.match(mode); (len(pass.Matches) == 1) != meet {
					t.Errorf("%v agree, %v: %d matches, want %v", names[:n], texts, len(pass.Matches), meet)
				}
				if !meet {
					s.cancel("u_0", tickets[0])
					s.cancel("u_1", tickets[1])
				}
			}
		}
	}
	s.noLeftovers("due", "pool")
}
