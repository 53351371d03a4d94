package idempotency_test

import (
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", idempotency.MaxKeyLength)
	for _, test := range []struct {
		values []string
		key    string
	}{
		{[]string{"k"}, "k"},
		{[]string{`"k"`}, "k"},
		{[]string{"8e03978e-40d5-43e8-bc93-6894a57f9324"}, "8e03978e-40d5-43e8-bc93-6894a57f9324"},
		{[]string{long}, long},
		{[]string{`"` + long + `"`}, long},
		{[]string{`"` + strings.Repeat(`\"`, 255) + `"`}, strings.Repeat(`"`, 255)},
		{[]string{`"a\"b\\c"`}, `a"b\c`},
		{[]string{`a"b`}, `a"b`},
		{[]string{`a\b`}, `a\b`},
		{[]string{"!~ "}, "!~ "},
	} {
		key, err := idempotency.ParseKey(test.values)
		if err != nil || key != test.key {
			t.Errorf("%q: %q, %v; want %q", test.values, key, err, test.key)
		}
	}
}

// HTTP servers differ in the headers that they let through, so every bad value is refused
// here.
func TestParseKeyRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", idempotency.MaxKeyLength+1)
	for code, all := range map[string][][]string{
		"idempotency_key_missing": {nil, {}, {""}},
		"idempotency_key_invalid": {
			{"a", "b"},
			{"a", "a"},
			{"", ""},
			{"a", ""},
			{long},
			{`"` + long + `"`},
			{"a\x00b"},
			{"a\nb"},
			{"a\r\nb"},
			{"a\tb"},
			{"a\x7fb"},
			{"a\x80"},
			{"é"},
			{"\xff"},
			{"a\u200b"},
			{"\x1b[31m"},
			{`""`},
			{`"`},
			{`"a`},
			{`"a\"`},
			{`"a\`},
			{`"a"b"`},
			{`"a\b"`},
			{`"a" `},
			{`"a";x`},
			{`"a", "b"`},
			{`"é"`},
			{"\"a\nb\""},
			{`"\`},
		},
	} {
		for _, values := range all {
			key, err := idempotency.ParseKey(values)
			if fault.Of(err) != fault.Malformed || !strings.HasPrefix(err.Error(), code+":") {
				t.Errorf("%q: %q, %v; want %s", values, key, err, code)
				continue
			}
			if strings.ContainsAny(err.Error(), "\x00\n\r\t\x1b\x7f") || len(err.Error()) > 300 {
				t.Errorf("%q: the error repeats it: %q", values, err)
			}
		}
	}
}

// For any header ParseKey returns a key that can be stored, or an error.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{"", "k", `"k"`, `"a\"b"`, `"`, `"\`, "é", "a\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := idempotency.ParseKey([]string{value})
		if err != nil {
			return
		}
		if key == "" || len(key) > idempotency.MaxKeyLength || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q became %q", value, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := idempotency.ParseKey([]string{quoted}); err != nil || again != key {
			t.Errorf("%q quoted as %s is %q, %v", key, quoted, again, err)
		}
	})
}
