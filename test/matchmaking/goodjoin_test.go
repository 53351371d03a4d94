package matchmaking_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// Unusual joins that are allowed are accepted unchanged.
func TestGoodJoin(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice := people.Player(t, "alice")
	for i, test := range []struct{ mode, body, attributes string }{
		{"casual", `{"idempotency_key":"KEY"}`, `{}`},
		{"casual", `{"idempotency_key":"KEY","party_size":1,"attributes":{}}`, `{}`},
		{"casual", `{"idempotency_key":"KEY","attributes":{"skill":"as I like"}}`, `{"skill":"as I like"}`},
		{"casual", `{"idempotency_key":"KEY","attributes":` + numbered(16) + `}`, numbered(16)},
		{"casual", `{"idempotency_key":"KEY","attributes":{"x":"` + strings.Repeat("x", 128) + `"}}`, `{"x":"` + strings.Repeat("x", 128) + `"}`},
		{"casual", `{"idempotency_key":"KEY","attributes":{"` + strings.Repeat("x", 64) + `":""}}`, `{"` + strings.Repeat("x", 64) + `":""}`},
		{"casual", `{"idempotency_key":"KEY","attributes":{"a":1e15,"b":-1e15,"c":0.1,"d":-0,"e":1e-300}}`, `{"a":1000000000000000,"b":-1000000000000000,"c":0.1,"d":0,"e":1e-300}`},
		{"casual", `{"idempotency_key":"KEY","attributes":{"t":"日本語 <b>'; -- ${x} {rank} %s\\n"}}`, `{"t":"日本語 <b>'; -- ${x} {rank} %s\\n"}`},
		{"rank", `{"idempotency_key":"KEY","attributes":{"skill":0}}`, `{"skill":0}`},
		{"rank", `{"idempotency_key":"KEY","attributes":{"skill":-0}}`, `{"skill":0}`},
		{"rank", `{"idempotency_key":"KEY","attributes":{"skill":10000,"region":5}}`, `{"skill":10000,"region":5}`},
		{"rank", `{"idempotency_key":"KEY","attributes":{"skill":1e4,"region":""}}`, `{"skill":10000,"region":""}`},
		{"rank", `{"idempotency_key":"KEY","attributes":{"skill":1234.5678,"region":"\t"}}`, ``},
	} {
		body := strings.Replace(test.body, "KEY", fmt.Sprint("k", i), 1)
		a := s.Call(http.MethodPost, system.JoinPath(test.mode), alice, body)
		if test.attributes == "" {
			system.WantProblem(t, a, http.StatusUnprocessableEntity, "attributes_invalid")
			continue
		}
		system.WantStatus(t, a, http.StatusCreated)
		ticketID := a.JSON(t)["ticket_id"].(string)
		want := system.Answer{Body: []byte(test.attributes)}.JSON(t)
		if got := s.ReadTicket(alice, ticketID)["attributes"]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s came back as %v", test.attributes, got)
		}
		system.WantStatus(t, s.CancelTicket(alice, ticketID), http.StatusOK)
	}
	// A key is any printable text; the header alone is enough.
	for _, key := range []string{strings.Repeat("k", 255), `a b`, `a:b`, `{rank}`, `*`, `~!`, `..`, `%00`, `\\\"`} {
		a := s.Call(http.MethodPost, system.JoinPath("casual"), alice, `{"idempotency_key":"`+key+`"}`)
		if a.Status != http.StatusCreated {
			t.Errorf("the key %q: answered %d %s, want 201", key, a.Status, a.Body)
			continue
		}
		system.WantStatus(t, s.CancelTicket(alice, a.JSON(t)["ticket_id"].(string)), http.StatusOK)
	}
	first := s.Call(http.MethodPost, system.JoinPath("casual"), alice, `{}`, "Idempotency-Key: only-here")
	system.WantStatus(t, first, http.StatusCreated)
	system.WantReplay(t, first, s.Call(http.MethodPost, system.JoinPath("casual"), alice, `{"idempotency_key":"only-here"}`))
	system.WantReplay(t, first, s.Call(http.MethodPost, system.JoinPath("casual"), alice, `{"idempotency_key":""}`, `Idempotency-Key: "only-here"`))
	wantWhole(s)
}
