package functions_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// What is unusual and allowed is taken as it is.
func TestGoodJoin(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice := people.player(t, "alice")
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
		a := s.call(http.MethodPost, joinPath(test.mode), alice, body)
		if test.attributes == "" {
			wantProblem(t, a, http.StatusUnprocessableEntity, "attributes_invalid")
			continue
		}
		wantStatus(t, a, http.StatusCreated)
		ticketID := a.json(t)["ticket_id"].(string)
		want := answer{body: []byte(test.attributes)}.json(t)
		if got := s.readTicket(alice, ticketID)["attributes"]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s came back as %v", test.attributes, got)
		}
		wantStatus(t, s.cancelTicket(alice, ticketID), http.StatusOK)
	}
	// A key is anything that prints; the header alone will do.
	for _, key := range []string{strings.Repeat("k", 255), `a b`, `a:b`, `{rank}`, `*`, `~!`, `..`, `%00`, `\\\"`} {
		a := s.call(http.MethodPost, joinPath("casual"), alice, `{"idempotency_key":"`+key+`"}`)
		if a.status != http.StatusCreated {
			t.Errorf("%q: %d %s", key, a.status, a.body)
			continue
		}
		wantStatus(t, s.cancelTicket(alice, a.json(t)["ticket_id"].(string)), http.StatusOK)
	}
	first := s.call(http.MethodPost, joinPath("casual"), alice, `{}`, "Idempotency-Key: only-here")
	wantStatus(t, first, http.StatusCreated)
	wantReplay(t, first, s.call(http.MethodPost, joinPath("casual"), alice, `{"idempotency_key":"only-here"}`))
	wantReplay(t, first, s.call(http.MethodPost, joinPath("casual"), alice, `{"idempotency_key":""}`, `Idempotency-Key: "only-here"`))
	s.wantWhole()
}
