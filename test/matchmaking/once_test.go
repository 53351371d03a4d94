package matchmaking_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// 64 simultaneous requests with one key make one ticket, and get the same answer.
func TestOneJoinAtOnce(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	s.UserID(alice)
	const clients = 64
	answers := make([]system.Answer, clients)
	var fresh atomic.Int32
	system.AtOnce(clients, func(i int) { answers[i] = s.JoinWith(alice, "rank", "k1", `{"skill":1500,"region":"eu"}`) })
	for _, a := range answers {
		if a.Status != http.StatusCreated || string(a.Body) != string(answers[0].Body) {
			t.Errorf("answered %d %s, and another %s", a.Status, a.Body, answers[0].Body)
		}
		if a.Header["Idempotent-Replayed"] == nil {
			fresh.Add(1)
		} else if a.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("Idempotent-Replayed %q", a.Header["Idempotent-Replayed"])
		}
	}
	if tickets := wantWhole(s); fresh.Load() != 1 || len(tickets) != 1 {
		t.Errorf("%d tickets, and %d answers that are no replay, want 1 and 1", len(tickets), fresh.Load())
	}
	// Simultaneous requests with different keys: one gets the ticket, the others are
	// refused and name it.
	system.AtOnce(clients, func(i int) { answers[i] = s.JoinWith(bob, "casual", fmt.Sprint("k", i), `{}`) })
	var ticketID string
	for _, a := range answers {
		if a.Status == http.StatusCreated {
			ticketID += a.Text("ticket_id") // two ids together would be no ticket's
		}
	}
	for _, a := range answers {
		if a.Status == http.StatusCreated {
			continue
		}
		system.WantProblem(t, a, http.StatusConflict, "ticket_queued")
		if detail := fmt.Sprint(a.JSON(t)["detail"]); !strings.Contains(detail, ticketID) {
			t.Errorf("%q does not name %s", detail, ticketID)
		}
	}
	if tickets := wantWhole(s); len(tickets) != 2 {
		t.Errorf("%d tickets, want 2", len(tickets))
	}
}

// A request is identified by its content, not its spelling; a key stands for one request
// of one user in one queue, whatever became of its ticket.
func TestJoinReplays(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	first := s.Call(http.MethodPost, system.JoinPath("rank"), alice, `{"party_size":1,"attributes":{"skill":1500,"region":"eu","language":"dé"},"idempotency_key":"k1"}`)
	system.WantStatus(t, first, http.StatusCreated)
	replays := func(when string) {
		t.Helper()
		before := s.Queues()
		for _, body := range []string{
			`{"party_size":1,"attributes":{"skill":1500,"region":"eu","language":"dé"},"idempotency_key":"k1"}`,
			`{"idempotency_key":"k1","attributes":{"language":"dé","region":"eu","skill":1500}}`,
			"\n{ \"idempotency_key\" :\t\"k1\",\r\n\"attributes\":{\"region\" : \"eu\",\"language\":\"d\\u00e9\" , \"skill\":1.5e3 } } ",
			`{"idempotency_key":"\u006b1","attr\u0069butes":{"region":"\u0065u","language":"dé","skill":1500.0}}`,
		} {
			system.WantReplay(t, first, s.Call(http.MethodPost, system.JoinPath("rank"), alice, body))
		}
		attributes := `{"attributes":{"skill":1500,"region":"eu","language":"dé"}`
		system.WantReplay(t, first, s.Call(http.MethodPost, system.JoinPath("rank"), alice, attributes+`}`, "Idempotency-Key: k1"))
		system.WantReplay(t, first, s.Call(http.MethodPost, system.JoinPath("rank"), alice, attributes+`,"idempotency_key":"k1"}`, "Idempotency-Key: k1"))
		system.WantReplay(t, first, s.Call(http.MethodPost, system.JoinPath("rank"), alice, attributes+`,"idempotency_key":"k1"}`, `Idempotency-Key: "k1"`))
		for _, other := range []string{
			`{"skill":1501,"region":"eu","language":"dé"}`, `{"skill":1500,"region":"EU","language":"dé"}`, `{"skill":1500,"region":"eu"}`,
			`{"skill":1500,"region":"eu","language":"de\u0301"}`, `{"skill":1500,"region":"eu","language":"dé","x":0}`, `{"skill":1500}`,
		} {
			system.WantProblem(t, s.JoinWith(alice, "rank", "k1", other), http.StatusConflict, "idempotency_key_reused")
		}
		if after := s.Queues(); after != before {
			t.Errorf("%s: a replay changed the queues:\n%s\n%s", when, before, after)
		}
	}
	replays("while it waits")
	// The same key in another queue, or of another user, is another request.
	system.WantStatus(t, s.JoinWith(alice, "casual", "k1", `{}`), http.StatusCreated)
	own := s.JoinWith(bob, "rank", "k1", `{"skill":1510}`)
	system.WantStatus(t, own, http.StatusCreated)
	ticketID, bobs := first.JSON(t)["ticket_id"].(string), own.JSON(t)["ticket_id"].(string)
	if own.Header["Idempotent-Replayed"] != nil || bobs == ticketID {
		t.Errorf("bob is answered %s, and alice %s", own.Body, first.Body)
	}
	matchAll(s)
	if got := s.ReadTicket(alice, ticketID); got["status"] != "MATCHED" {
		t.Fatalf("alice's ticket is %v, want MATCHED", got)
	}
	replays("when it is matched")
	system.WantReplay(t, own, s.JoinWith(bob, "rank", "k1", `{"skill":1510}`))
	cancelled := s.JoinWith(bob, "casual", "k2", `{}`)
	system.WantStatus(t, cancelled, http.StatusCreated)
	system.WantStatus(t, s.CancelTicket(bob, cancelled.JSON(t)["ticket_id"].(string)), http.StatusOK)
	system.WantReplay(t, cancelled, s.JoinWith(bob, "casual", "k2", `{}`))
	matchAll(s)
	if n := s.Count(`SELECT count(*) FROM notification.notifications`); n != 2 {
		t.Errorf("%d notifications of one match, want 2", n)
	}
	wantWhole(s)
}
