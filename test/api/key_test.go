package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// A write without a usable key is refused before it has any effect.
func TestBadIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for _, test := range []struct {
		name, code string
		keys       []string
	}{
		{"missing", "idempotency_key_missing", nil},
		{"empty", "idempotency_key_missing", []string{""}},
		{"two", "idempotency_key_invalid", []string{"k1", "k2"}},
		{"twice the same", "idempotency_key_invalid", []string{"k1", "k1"}},
		{"256 characters", "idempotency_key_invalid", []string{strings.Repeat("k", 256)}},
		{"256 characters in quotes", "idempotency_key_invalid", []string{`"` + strings.Repeat("k", 256) + `"`}},
		{"a tab", "idempotency_key_invalid", []string{"a\tb"}},
		{"not ASCII", "idempotency_key_invalid", []string{"clé"}},
		{"not UTF-8", "idempotency_key_invalid", []string{"k\xff"}},
		{"empty quotes", "idempotency_key_invalid", []string{`""`}},
		{"not closed", "idempotency_key_invalid", []string{`"k`}},
		{"one quote", "idempotency_key_invalid", []string{`"`}},
		{"quote inside", "idempotency_key_invalid", []string{`"a"b"`}},
		{"escape at the end", "idempotency_key_invalid", []string{`"a\"`}},
		{"unknown escape", "idempotency_key_invalid", []string{`"a\nb"`}},
		{"parameters after it", "idempotency_key_invalid", []string{`"a";b=1`}},
		{"two in one line", "idempotency_key_invalid", []string{`"a", "b"`}},
	} {
		for _, path := range []string{system.GrantsPath, system.RevokesPath} {
			t.Run(test.name+path[len("/v1/entitlements"):], func(t *testing.T) {
				s := s.In(t)
				header := http.Header{"Content-Type": {"application/json"}}
				if test.keys != nil {
					header["Idempotency-Key"] = test.keys
				}
				s.Untouched(func() {
					a := s.Send(system.Request{
						Method: http.MethodPost, Path: path, Token: s.Writer, Header: header,
						Body: system.ChangeBody("u_1", "item1", "purchase", "p_1"),
					})
					system.WantProblem(t, a, http.StatusBadRequest, test.code)
				})
			})
		}
	}
}

// A quoted key equals the bare one: some clients send structured fields, some do not, and
// a retry may come from another client.
func TestQuotedKey(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for _, test := range []struct{ first, second string }{
		{`k1`, `"k1"`},
		{`"k2"`, `k2`},
		{`a\b`, `"a\\b"`},
		{`say "hi"`, `"say \"hi\""`},
		{strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`},
		{`a b ~!{}`, `"a b ~!{}"`},
	} {
		body := system.ChangeBody("u_1", "item1", "purchase", "p_1")
		first := s.Post(system.GrantsPath, test.first, body)
		system.WantStatus(t, first, http.StatusOK)
		if first.Header.Get("Idempotent-Replayed") != "" {
			t.Fatalf("the first request with %s is answered as a replay", test.first)
		}
		second := s.Post(system.GrantsPath, test.second, body)
		system.WantReplay(t, first, second)
	}
	if n := s.Count(`SELECT count(*) FROM entitlement.outbox_events`); n != 6 {
		t.Errorf("%d events, want 6", n)
	}
}
