package functions_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// 64 requests at once with one key are one ticket, and all get the same bytes.
func TestOneJoinAtOnce(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice, bob := people.player(t, "alice"), people.player(t, "bob")
	s.userID(alice)
	const clients = 64
	answers := make([]answer, clients)
	var fresh atomic.Int32
	atOnce(clients, func(i int) { answers[i] = s.joinWith(alice, "rank", "k1", `{"skill":1500,"region":"eu"}`) })
	for _, a := range answers {
		if a.status != http.StatusCreated || string(a.body) != string(answers[0].body) {
			t.Errorf("%d %s, and another %s", a.status, a.body, answers[0].body)
		}
		if a.header["Idempotent-Replayed"] == nil {
			fresh.Add(1)
		} else if a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("Idempotent-Replayed %q", a.header["Idempotent-Replayed"])
		}
	}
	if tickets := s.wantWhole(); fresh.Load() != 1 || len(tickets) != 1 {
		t.Errorf("%d tickets; %d answers are the first", len(tickets), fresh.Load())
	}
	// Different requests at once, with keys of their own: one waits, the others are
	// told which.
	atOnce(clients, func(i int) { answers[i] = s.joinWith(bob, "casual", fmt.Sprint("k", i), `{}`) })
	var ticketID string
	for _, a := range answers {
		if a.status == http.StatusCreated {
			ticketID += a.json(t)["ticket_id"].(string) // of two it would be nobody's
		}
	}
	for _, a := range answers {
		if a.status == http.StatusCreated {
			continue
		}
		wantProblem(t, a, http.StatusConflict, "ticket_queued")
		if detail := fmt.Sprint(a.json(t)["detail"]); !strings.Contains(detail, ticketID) {
			t.Errorf("%q does not name %s", detail, ticketID)
		}
	}
	if tickets := s.wantWhole(); len(tickets) != 2 {
		t.Errorf("%d tickets", len(tickets))
	}
}

// A request is known by what it says, not by how it is written; a key stands for
// one request of one user in one queue, whatever became of its ticket.
func TestJoinReplays(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice, bob := people.player(t, "alice"), people.player(t, "bob")
	first := s.call(http.MethodPost, joinPath("rank"), alice, `{"party_size":1,"attributes":{"skill":1500,"region":"eu","language":"dé"},"idempotency_key":"k1"}`)
	wantStatus(t, first, http.StatusCreated)
	replays := func(when string) {
		t.Helper()
		before := s.queues()
		for _, body := range []string{
			`{"party_size":1,"attributes":{"skill":1500,"region":"eu","language":"dé"},"idempotency_key":"k1"}`,
			`{"idempotency_key":"k1","attributes":{"language":"dé","region":"eu","skill":1500}}`,
			"\n{ \"idempotency_key\" :\t\"k1\",\r\n\"attributes\":{\"region\" : \"eu\",\"language\":\"d\\u00e9\" , \"skill\":1.5e3 } } ",
			`{"idempotency_key":"\u006b1","attr\u0069butes":{"region":"\u0065u","language":"dé","skill":1500.0}}`,
		} {
			wantReplay(t, first, s.call(http.MethodPost, joinPath("rank"), alice, body))
		}
		attributes := `{"attributes":{"skill":1500,"region":"eu","language":"dé"}`
		wantReplay(t, first, s.call(http.MethodPost, joinPath("rank"), alice, attributes+`}`, "Idempotency-Key: k1"))
		wantReplay(t, first, s.call(http.MethodPost, joinPath("rank"), alice, attributes+`,"idempotency_key":"k1"}`, "Idempotency-Key: k1"))
		wantReplay(t, first, s.call(http.MethodPost, joinPath("rank"), alice, attributes+`,"idempotency_key":"k1"}`, `Idempotency-Key: "k1"`))
		for _, other := range []string{
			`{"skill":1501,"region":"eu","language":"dé"}`, `{"skill":1500,"region":"EU","language":"dé"}`, `{"skill":1500,"region":"eu"}`,
			`{"skill":1500,"region":"eu","language":"de\u0301"}`, `{"skill":1500,"region":"eu","language":"dé","x":0}`, `{"skill":1500}`,
		} {
			wantProblem(t, s.joinWith(alice, "rank", "k1", other), http.StatusConflict, "idempotency_key_reused")
		}
		if after := s.queues(); after != before {
			t.Errorf("%s: a replay changed the queues:\n%s\n%s", when, before, after)
		}
	}
	replays("while it waits")
	// Another queue, and another user, are other requests.
	wantStatus(t, s.joinWith(alice, "casual", "k1", `{}`), http.StatusCreated)
	own := s.joinWith(bob, "rank", "k1", `{"skill":1510}`)
	wantStatus(t, own, http.StatusCreated)
	ticketID, bobs := first.json(t)["ticket_id"].(string), own.json(t)["ticket_id"].(string)
	if own.header["Idempotent-Replayed"] != nil || bobs == ticketID {
		t.Errorf("bob gets %s, and alice %s", own.body, first.body)
	}
	s.matchAll()
	if got := s.readTicket(alice, ticketID); got["status"] != "MATCHED" {
		t.Fatalf("%v", got)
	}
	replays("when it is matched")
	wantReplay(t, own, s.joinWith(bob, "rank", "k1", `{"skill":1510}`))
	cancelled := s.joinWith(bob, "casual", "k2", `{}`)
	wantStatus(t, cancelled, http.StatusCreated)
	wantStatus(t, s.cancelTicket(bob, cancelled.json(t)["ticket_id"].(string)), http.StatusOK)
	wantReplay(t, cancelled, s.joinWith(bob, "casual", "k2", `{}`))
	s.matchAll()
	if n := s.count(`SELECT count(*) FROM notification.notifications`); n != 2 {
		t.Errorf("%d notifications of one match of two", n)
	}
	s.wantWhole()
}
