package matchmaking_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

func many(n int) string {
	var pairs []string
	for i := range n {
		pairs = append(pairs, fmt.Sprintf(`"a%d":%d`, i, i))
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// texts returns attributes that are exactly so many bytes of shortest JSON, 16 at least.
func texts(bytes int) string {
	text := "{"
	for i := 0; ; i++ {
		name := fmt.Sprintf(`"a%d":"`, i)
		left := bytes - len(text) - len(name) - len(`"}`)
		if left <= 128 {
			return text + name + strings.Repeat("x", left) + `"}`
		}
		text += name + strings.Repeat("x", 100) + `",`
	}
}

func TestAttributesThatAreAllRight(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, many(16), `{"a":1e15}`, `{"a":-1e15}`, `{"a":0.1}`, `{"a":1e-300}`, `{"a":""}`, `{"a":" "}`, `{"a":"` + strings.Repeat("x", 128) + `"}`,
		`{"a":"` + strings.Repeat("é", 64) + `"}`, `{"` + strings.Repeat("x", 64) + `":1}`, `{"A_z.0-9":1}`, `{"a":"日本語 «ß» 🎮"}`, `{"a":"<b>&{c}\"\\"}`,
		`{"skill":"no number, where nobody asks"}`, texts(1024), strings.ReplaceAll(texts(1024), ":", " : "),
	} {
		if _, err := parse(text); err != nil {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

func TestAttributesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		many(17), texts(1025), strings.ReplaceAll(texts(600), "x", `\"`), `{"":1}`, `{"` + strings.Repeat("x", 65) + `":1}`, `{"a b":1}`, `{"é":1}`, `{"a\n":1}`, `{"a{":1}`, `{"a:b":1}`,
		`{"a":null}`, `{"a":true}`, `{"a":[1]}`, `{"a":{"b":1}}`, `{"a":1000000000000001}`, `{"a":-1.1e15}`, `{"a":1e400}`, `{"a":-1e400}`,
		`{"a":"` + strings.Repeat("x", 129) + `"}`, `{"a":"` + strings.Repeat("é", 65) + `"}`,
		`{"a":"\n"}`, `{"a":"\t"}`, `{"a":"\u0000"}`, `{"a":"\u007f"}`, `{"a":"\u00a0"}`, `{"a":"\u2028"}`, `{"a":"\u202e"}`, `{"a":"\ufeff"}`, `{"a":"\ue000"}`,
	} {
		_, err := parse(text)
		var refused *fault.Error
		if !errors.As(err, &refused) || refused.Kind != fault.Invalid || refused.Code != "attributes_invalid" || !strings.HasPrefix(refused.Detail, "attributes: ") {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

// A ranked mode requires a skill from 0 to 10000; the other modes do not look at it.
func TestSkill(t *testing.T) {
	s := start(t)
	for i, text := range []string{`{}`, `{"skill":"5"}`, `{"skill":-1}`, `{"skill":-0.001}`, `{"skill":10000.1}`, `{"Skill":5}`, `{"skill":1e15}`} {
		before := s.dump()
		var refused *fault.Error
		if _, _, err := s.try("u_bad", "rank", "k", text); !errors.As(err, &refused) || refused.Kind != fault.Invalid || refused.Code != "attributes_invalid" {
			t.Errorf("%s: %v", text, err)
		}
		if changed := s.changes(before); len(changed) > 0 {
			t.Errorf("%s changed %v", text, changed)
		}
		s.join(fmt.Sprint("u_", i), "regional", text)
	}
	for _, c := range []struct {
		a, b string
		meet bool
	}{
		{"0", "100", true},
		{"-0", "0", true},
		{"0", "100.5", false},
		{"10000", "9900", true},
		{"9899.999", "10000", false},
		{"0.25", "100.25", true},
		{"0.25", "100.5", false},
		{"1e-7", "0", true},
		{"1e2", "100.0", true},
	} {
		a, b := s.joinAs("u_a", "rank", c.a+c.b, `{"skill":`+c.a+`}`), s.joinAs("u_b", "rank", c.a+c.b, `{"skill":`+c.b+`}`)
		if pass := s.match("rank"); (len(pass.Matches) == 1) != c.meet {
			t.Errorf("%s and %s: matched %v, want %v: %+v", c.a, c.b, !c.meet, c.meet, pass)
		}
		_, _, _ = s.Cancel(t.Context(), "u_a", a)
		_, _, _ = s.Cancel(t.Context(), "u_b", b)
	}
}

// A ticket shows its attributes as they were sent.
func TestAttributesComeBack(t *testing.T) {
	s := start(t)
	for i, text := range []string{`{}`, `{"a":1,"b":"x"}`, `{"n":0.1,"z":-1e15,"t":"日本語 <&> \"\\\" {casual}"}`, many(16)} {
		var want map[string]any
		kit.Must(t, json.Unmarshal([]byte(text), &want))
		user := fmt.Sprint("u_", i)
		if got := s.get(user, s.join(user, "casual", text)).Attributes; !reflect.DeepEqual(got, want) {
			t.Errorf("%s came back as %v", text, got)
		}
	}
}

// Two requests are the same when their attributes are, in any order and notation.
func TestAttributesOfTheSameRequest(t *testing.T) {
	s := start(t)
	for i, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":"x"}`, ` { "b" : "x" , "a" : 1.0 } `, true},
		{`{"a":"é"}`, `{"a":"\u00e9"}`, true},
		{`{"a":0}`, `{"a":-0}`, true},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{}`, `{"a":1}`, false},
		{`{"a":1}`, `{"b":1}`, false},
		{`{"a":1e15}`, `{"a":1000000000000000}`, true},
	} {
		user := fmt.Sprint("u_", i)
		first := s.joinAs(user, "casual", "k", c.a)
		again, replayed, err := s.try(user, "casual", "k", c.b)
		if c.same != (err == nil && replayed && again.TicketID == first) {
			t.Errorf("%s and %s are the same request, want %v: %+v, replayed %v, %v", c.a, c.b, c.same, again, replayed, err)
		}
	}
}

// Attributes are refused as the caller's fault, or accepted.
func FuzzParseAttributes(f *testing.F) {
	for _, text := range []string{`{"skill":1500,"region":"eu"}`, many(17), `{"a":-0}`, `{"a":1e400}`, `{"a":"\u0000"}`, `{"":1}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var raw map[string]json.RawMessage
		if json.Unmarshal(text, &raw) != nil {
			return
		}
		if _, err := matchmaking.ParseAttributes(raw); err != nil && fault.Of(err) != fault.Invalid {
			t.Errorf("%s: %v", text, err)
		}
	})
}
