package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// with returns a grant's body with value, a JSON text, for field.
func with(field, value string) string {
	fields := map[string]string{"user_id": `"u_1"`, "stock_keeping_unit": `"item1"`, "reason": `"purchase"`, "purchase_id": `"p_1"`}
	fields[field] = value
	return fmt.Sprintf(`{"user_id":%s,"stock_keeping_unit":%s,"reason":%s,"purchase_id":%s}`,
		fields["user_id"], fields["stock_keeping_unit"], fields["reason"], fields["purchase_id"])
}

var changeFields = []string{"user_id", "stock_keeping_unit", "reason", "purchase_id"}

// An unreadable body is answered 400, a readable but unacceptable one 422, and neither
// leaves a trace.
func TestBadBody(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	whole := system.ChangeBody("u_1", "item1", "purchase", "p_1")
	type test struct {
		name   string
		status int
		body   string
	}
	tests := []test{
		{"empty", 400, ``},
		{"spaces", 400, "  \n"},
		{"cut off", 400, whole[:len(whole)-1]},
		{"not JSON", 400, `user_id=u_1`},
		{"single quotes", 400, `{'user_id':'u_1'}`},
		{"comment", 400, whole + ` // thanks`},
		{"byte order mark", 400, "\ufeff" + whole},
		{"NaN", 400, with("user_id", `NaN`)},
		{"trailing comma", 400, whole[:len(whole)-1] + `,}`},
		{"second value", 400, whole + whole},
		{"garbage after it", 400, whole + `garbage`},
		{"brace after it", 400, whole + `}`},
		{"raw line break in a string", 400, with("user_id", "\"u\n1\"")},
		{"broken escape", 400, with("user_id", `"\x41"`)},
		{"lone high surrogate", 400, with("user_id", `"\ud800"`)},
		{"lone low surrogate", 400, with("user_id", `"\udc00x"`)},
		{"surrogates the wrong way round", 400, with("user_id", `"\udc00\ud800"`)},
		{"not UTF-8", 400, with("user_id", "\"u\xff\"")},
		{"overlong UTF-8", 400, with("user_id", "\"\xc0\xaf\"")},
		{"surrogate in UTF-8", 400, with("user_id", "\"\xed\xa0\x80\"")},
		{"not UTF-8 in a name", 400, strings.Replace(whole, `"reason"`, "\"reason\xff\"", 1)},
		{"a list", 422, `[]`},
		{"a list of one", 422, `[` + whole + `]`},
		{"a string", 422, `"x"`},
		{"a number", 422, `1`},
		{"null", 422, `null`},
		{"true", 422, `true`},
		{"no fields", 422, `{}`},
		{"unknown field", 422, whole[:len(whole)-1] + `,"amount":1}`},
		{"empty name", 422, whole[:len(whole)-1] + `,"":1}`},
		{"$schema", 422, whole[:len(whole)-1] + `,"$schema":"x"}`},
	}
	for _, field := range changeFields {
		add := func(name string, status int, value string) {
			tests = append(tests, test{field + " " + name, status, with(field, value)})
		}
		quoted := `"` + field + `"`
		value := strings.Split(strings.SplitAfter(whole, quoted+`:`)[1], `"`)[1]
		tests = append(tests,
			test{field + " twice", 400, `{` + quoted + `:"` + value + `",` + whole[1:]},
			test{field + " twice, once escaped", 400, `{"\u00` + fmt.Sprintf("%02x", field[0]) + field[1:] + `":"other",` + whole[1:]},
			test{field + " missing", 422, strings.Replace(whole, quoted+`:"`+value+`"`, `"x":"y"`, 1)},
			test{field + " in capitals", 422, strings.Replace(whole, quoted, strings.ToUpper(quoted), 1)},
			test{field + " in capitals too", 422, `{` + strings.ToUpper(quoted) + `:"x",` + whole[1:]},
		)
		add("null", 422, `null`)
		add("a number", 422, `1`)
		add("true", 422, `true`)
		add("a list", 422, `["x"]`)
		add("an object", 422, `{"x":1}`)
		add("empty", 422, `""`)
		add("of 129 characters", 422, `"`+strings.Repeat("x", 129)+`"`)
		add("of 129 characters of several bytes", 422, `"`+strings.Repeat("é", 129)+`"`)
		add("NUL", 422, `"a\u0000b"`)
		add("only NUL", 422, `"\u0000"`)
		add("line break", 422, `"a\nb"`)
		add("line break at the end", 422, `"a\n"`)
		add("escape code", 422, `"\u001b[31m"`)
		add("C1 control", 422, `"\u009b31m"`)
		add("DEL", 422, `"\u007f"`)
		add("right-to-left override", 422, `"\u202e"`)
		add("zero-width space", 422, `"a\u200b"`)
		// Editors, terminals and scripts take both for line breaks.
		add("line separator", 422, `"a\u2028b"`)
		add("paragraph separator", 422, `"a\u2029b"`)
	}
	for i, test := range tests {
		for _, path := range []string{system.GrantsPath, system.RevokesPath} {
			t.Run(test.name+path[len("/v1/entitlements"):], func(t *testing.T) {
				s := s.In(t)
				a := s.Send(system.Request{
					Method: http.MethodPost, Path: path, Token: s.Writer, Body: test.body,
					Header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {fmt.Sprint("k", i)}},
				})
				system.WantProblem(t, a, test.status, "")
			})
		}
	}
	if n := s.Count(`SELECT (SELECT count(*) FROM entitlement.entitlements) + (SELECT count(*) FROM entitlement.idempotency_keys)
		+ (SELECT count(*) FROM entitlement.entitlement_audit) + (SELECT count(*) FROM entitlement.outbox_events)`); n != 0 {
		t.Errorf("refused requests left %d rows: %s", n, s.Rows())
	}
}

// Length is counted in characters, and printable text is accepted unchanged.
func TestGoodBody(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for i, value := range []string{
		strings.Repeat("x", 128), strings.Repeat("é", 128), strings.Repeat("𝄞", 128),
		"x", "a b", "a/b", `"\`, "日本語", "<script>", "'; DROP TABLE x; --", "%00", "🎁", "..", `{"a":1}`,
	} {
		for _, field := range changeFields {
			quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value)
			a := s.Post(system.GrantsPath, fmt.Sprint(field, i), with(field, `"`+quoted+`"`))
			if a.Status != http.StatusOK {
				t.Errorf("%s %q: answered %d %s, want 200", field, value, a.Status, a.Body)
				continue
			}
			if field == "user_id" || field == "stock_keeping_unit" {
				if got := a.JSON(t)[field]; got != value {
					t.Errorf("%s %q came back as %q", field, value, got)
				}
			}
		}
	}
}

func TestContentType(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for i, test := range []struct {
		media  []string
		status int
	}{
		{[]string{"application/json"}, 200},
		{[]string{"application/json; charset=utf-8"}, 200},
		{[]string{`application/json;charset="UTF-8"`}, 200},
		{[]string{"Application/JSON"}, 200},
		{nil, 415},
		{[]string{""}, 415},
		{[]string{"text/plain"}, 415},
		{[]string{"text/json"}, 415},
		{[]string{"application/x-www-form-urlencoded"}, 415},
		{[]string{"multipart/form-data; boundary=x"}, 415},
		{[]string{"application/jsonx"}, 415},
		{[]string{"application/problem+json"}, 415},
		{[]string{"application/cloudevents+json"}, 415},
		{[]string{"application/json, text/plain"}, 415},
		{[]string{"json"}, 415},
		{[]string{"application/json; ="}, 415},
	} {
		t.Run(fmt.Sprint(test.media), func(t *testing.T) {
			s := s.In(t)
			header := http.Header{"Idempotency-Key": {fmt.Sprint("k", i)}}
			if test.media != nil {
				header["Content-Type"] = test.media
			}
			send := func() system.Answer {
				return s.Send(system.Request{
					Method: http.MethodPost, Path: system.GrantsPath, Token: s.Writer, Header: header,
					Body: system.ChangeBody("u_1", "item1", "purchase", "p_1"),
				})
			}
			if test.status == http.StatusOK {
				system.WantStatus(t, send(), test.status)
				return
			}
			s.Untouched(func() { system.WantProblem(t, send(), test.status, "content_type_unsupported") })
		})
	}
}

// A route without a body ignores Content-Type.
func TestContentTypeOfRead(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	a := s.Send(system.Request{
		Method: http.MethodGet, Path: "/v1/users/u_1/entitlements", Token: s.Writer,
		Header: http.Header{"Content-Type": {"text/plain"}, "Accept": {"text/html"}},
	})
	system.WantStatus(t, a, http.StatusOK)
}

// The limit is 64 KiB exactly, whether or not the length is announced.
func TestBodySize(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	const limit = 64 << 10
	for _, test := range []struct{ size, status int }{
		{limit - 1, 200}, {limit, 200}, {limit + 1, 413}, {limit + 2, 413}, {10 * limit, 413}, {100 * limit, 413},
	} {
		for _, path := range []string{system.GrantsPath, system.RevokesPath} {
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprint(test.size, path[len("/v1/entitlements"):], " chunked ", chunked), func(t *testing.T) {
					s := s.In(t)
					body := system.ChangeBody("u_1", "item1", "purchase", "p_1")
					body += strings.Repeat(" ", test.size-len(body))
					send := func() system.Answer {
						return s.Send(system.Request{
							Method: http.MethodPost, Path: path, Token: s.Writer, Body: body, Chunked: chunked,
							Header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {fmt.Sprint(test.size, chunked)}},
						})
					}
					if test.status == http.StatusOK {
						system.WantStatus(t, send(), test.status)
						return
					}
					s.Untouched(func() { system.WantProblem(t, send(), test.status, "body_too_large") })
				})
			}
		}
	}
}

// 32 levels are parsed (and are not a grant), 33 are refused before that.
func TestNesting(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for _, test := range []struct {
		levels, status int
	}{{2, 422}, {32, 422}, {33, 400}, {1000, 400}, {30000, 400}} {
		for _, brackets := range [][2]string{{`[`, `]`}, {`{"a":`, `}`}} {
			inner := test.levels - 1 // the body is one
			if len(brackets[0])*inner > 60_000 {
				continue
			}
			value := strings.Repeat(brackets[0], inner) + strings.Repeat(brackets[1], inner)
			if brackets[0] != `[` {
				value = strings.Repeat(brackets[0], inner) + `1` + strings.Repeat(brackets[1], inner)
			}
			s.Untouched(func() { system.WantProblem(t, s.Post(system.GrantsPath, "k1", with("reason", value)), test.status, "") })
		}
	}
}
