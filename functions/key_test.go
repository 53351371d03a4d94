package functions_test

import (
	"net/http"
	"strings"
	"testing"
)

// A write without a usable key is refused before anything is done.
func TestBadIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
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
		for _, path := range []string{grantsPath, revokesPath} {
			t.Run(test.name+path[len("/v1/entitlements"):], func(t *testing.T) {
				s := s.in(t)
				header := http.Header{"Content-Type": {"application/json"}}
				if test.keys != nil {
					header["Idempotency-Key"] = test.keys
				}
				s.untouched(func() {
					a := s.send(request{method: http.MethodPost, path: path, token: s.writer, header: header,
						body: changeBody("u_1", "item1", "purchase", "p_1")})
					wantProblem(t, a, http.StatusBadRequest, test.code)
				})
			})
		}
	}
}

// A quoted key is the same key as the bare one: some clients send structured
// fields, some do not, and a retry may go through another client.
func TestQuotedKey(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	for _, test := range []struct{ first, second string }{
		{`k1`, `"k1"`},
		{`"k2"`, `k2`},
		{`a\b`, `"a\\b"`},
		{`say "hi"`, `"say \"hi\""`},
		{strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`},
		{`a b ~!{}`, `"a b ~!{}"`},
	} {
		body := changeBody("u_1", "item1", "purchase", "p_1")
		first := s.post(grantsPath, test.first, body)
		wantStatus(t, first, http.StatusOK)
		if first.header.Get("Idempotent-Replayed") != "" {
			t.Fatalf("%s: used before", test.first)
		}
		second := s.post(grantsPath, test.second, body)
		wantReplay(t, first, second)
	}
	if n := s.count(`SELECT count(*) FROM entitlement.outbox_events`); n != 6 {
		t.Errorf("%d events", n)
	}
}

func wantReplay(t testing.TB, first, second answer) {
	t.Helper()
	if second.status != first.status || string(second.body) != string(first.body) || second.header.Get("ETag") != first.header.Get("ETag") {
		t.Fatalf("not replayed:\nfirst  %d %s %s\nsecond %d %s %s", first.status, first.header.Get("ETag"), first.body, second.status, second.header.Get("ETag"), second.body)
	}
	if second.header.Get("Idempotent-Replayed") != "true" {
		t.Fatal("Idempotent-Replayed is missing")
	}
	if media := second.header.Get("Content-Type"); media != first.header.Get("Content-Type") {
		t.Errorf("Content-Type %q", media)
	}
}
