package functions_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// cloudEvent is an event to send.
type cloudEvent struct {
	id, source, kind string
	data             string
}

func purchase(kind, id, user, item, purchase string) cloudEvent {
	return cloudEvent{id, "/shop", "purchase." + kind, changeBody(user, item, kind, purchase)}
}

// binary sends it with its attributes in headers.
func (s *system) binary(e cloudEvent, headers ...string) answer {
	s.t.Helper()
	return s.call(http.MethodPost, eventsPath, s.writer, e.data, append([]string{
		"Content-Type: application/json", "Ce-Specversion: 1.0", "Ce-Id: " + e.id, "Ce-Source: " + e.source, "Ce-Type: " + e.kind,
	}, headers...)...)
}

// structured sends it as one JSON object.
func (s *system) structured(e cloudEvent) answer {
	s.t.Helper()
	return s.envelope(e.envelope(nil))
}

// envelope is the structured form, with some attributes changed; null leaves one out.
func (e cloudEvent) envelope(change map[string]any) string {
	attributes := map[string]any{
		"specversion": "1.0", "id": e.id, "source": e.source, "type": e.kind,
		"datacontenttype": "application/json", "data": json.RawMessage(e.data),
	}
	maps.Copy(attributes, change)
	maps.DeleteFunc(attributes, func(_ string, v any) bool { return v == nil })
	text, err := json.Marshal(attributes)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (s *system) envelope(body string) answer {
	s.t.Helper()
	return s.call(http.MethodPost, eventsPath, s.writer, body, "Content-Type: application/cloudevents+json; charset=UTF-8")
}

// A purchase grants and a refund revokes, in both modes.
func TestPurchaseEvents(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	for mode, send := range map[string]func(cloudEvent) answer{
		"binary":     func(e cloudEvent) answer { return s.binary(e) },
		"structured": s.structured,
	} {
		bought := send(purchase("completed", mode+"1", "u_1", mode, "p_1"))
		if bought.status != http.StatusOK || bought.json(t)["status"] != "ACTIVE" || bought.header.Get("ETag") != `"1"` {
			t.Fatalf("%s completed: %d %v %s", mode, bought.status, bought.header, bought.body)
		}
		refunded := send(purchase("refunded", mode+"2", "u_1", mode, "p_1"))
		if refunded.status != http.StatusOK || refunded.json(t)["status"] != "REVOKED" || refunded.header.Get("ETag") != `"2"` {
			t.Fatalf("%s refunded: %d %v %s", mode, refunded.status, refunded.header, refunded.body)
		}
	}
	// What it tells others is the same as that of a request.
	if n := s.count(`SELECT count(*) FROM entitlement.outbox_events WHERE payload->>'source' = 'completed' AND payload->>'source_id' = 'p_1'`); n != 2 {
		t.Errorf("%d events with the purchase's source", n)
	}
}

// An event comes any number of times, in whichever mode, and counts once.
func TestRedeliveredEvent(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	e := purchase("completed", "e1", "u_1", "item1", "p_1")
	first := s.binary(e)
	wantStatus(t, first, http.StatusOK)
	rows := s.rows()
	wantReplay(t, first, s.binary(e))
	wantReplay(t, first, s.structured(e))
	e.data = strings.Replace(e.data, ",", " ,\n", 1)
	wantReplay(t, first, s.binary(e))
	// An Idempotency-Key is no part of an event.
	wantReplay(t, first, s.binary(e, "Idempotency-Key: another"))
	if after := s.rows(); after != rows {
		t.Fatalf("a redelivery left rows:\n%s\n%s", rows, after)
	}
	atOnce(32, func(int) {
		if a := s.structured(purchase("completed", "e2", "u_1", "item2", "p_2")); a.status != http.StatusOK || a.json(t)["version"] != 1.0 {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
	if n := s.count(`SELECT count(*) FROM entitlement.outbox_events`); n != 2 {
		t.Errorf("%d events went out", n)
	}
}

// Headers carry what is not plain ASCII percent-encoded (CloudEvents HTTP binding
// 1.0.2, 3.1.3.4): the event is the same one in either mode.
func TestRedeliveredInTheOtherMode(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	for plain, encoded := range map[string]string{"e 1": "e%201", "é": "%C3%A9", `"`: "%22", "100%": "100%25"} {
		e := purchase("completed", plain, "u_1", "item1", "p_1")
		first := s.structured(e)
		wantStatus(t, first, http.StatusOK)
		e.id = encoded
		if second := s.binary(e); second.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%q as %s counted twice: %d %s", plain, encoded, second.status, second.body)
		}
	}
}

// Source and id together name an event, however odd they are.
func TestEventIdentity(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	long := strings.Repeat("x", 900)
	names := [][2]string{
		{"/shop", "1"}, {"/shop/other", "1"}, {"/shop", "2"}, {"/shop", "1 "}, {"/shop", "+1"}, {"/shop", "%201"},
		{"/a", "b/c"}, {"/a/b", "c"}, {"a%20b", "c"}, {"urn:x:é", "1"}, {"urn:x", "é1"},
		{"/" + long, "1"}, {"/" + long, "2"}, {"/" + long + "y", "1"}, {"/", long}, {"/", long + "z"},
	}
	for i, name := range names {
		a := s.structured(cloudEvent{name[1], name[0], "purchase.completed", changeBody("u_1", "item1", "purchase", "p_1")})
		if a.status != http.StatusOK || a.json(t)["version"] != float64(i+1) {
			t.Errorf("%q: %d %.300s", name, a.status, a.body)
		}
	}
	// It is not the key of a request either, even of one that looks like it.
	wantStatus(t, s.grant("%2Fshop 1", "u_1", "item9"), http.StatusOK)
}

// The events of one item may come in any order, but a refunded purchase never
// gives it back, and another purchase does.
func TestRefundOvertakesPurchase(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	first := s.binary(purchase("refunded", "e1", "u_1", "item1", "p_1"))
	if first.status != http.StatusOK || first.json(t)["status"] != "REVOKED" || first.header.Get("ETag") != `"1"` {
		t.Fatalf("refund first: %d %s", first.status, first.body)
	}
	late := s.binary(purchase("completed", "e2", "u_1", "item1", "p_1"))
	if late.status != http.StatusOK || late.json(t)["status"] != "REVOKED" || late.header.Get("ETag") != `"2"` {
		t.Fatalf("its purchase later: %d %s", late.status, late.body)
	}
	if n := s.count(`SELECT count(*) FROM entitlement.outbox_events WHERE event_type = 'EntitlementGranted'`); n != 0 {
		t.Error("somebody is told of a grant that never was")
	}
	// The refund stays known after its key is forgotten.
	if n := s.count(`WITH gone AS (DELETE FROM entitlement.idempotency_keys RETURNING 1) SELECT count(*) FROM gone`); n != 2 {
		t.Fatalf("%d keys", n)
	}
	if a := s.binary(purchase("completed", "e2", "u_1", "item1", "p_1")); a.status != http.StatusOK || a.json(t)["status"] != "REVOKED" {
		t.Errorf("long after: %d %s", a.status, a.body)
	}
	// The refund was of one purchase of one item of one user.
	for _, e := range []cloudEvent{
		purchase("completed", "e3", "u_1", "item1", "p_2"),
		purchase("completed", "e4", "u_1", "item2", "p_1"),
		purchase("completed", "e5", "u_2", "item1", "p_1"),
	} {
		if a := s.binary(e); a.status != http.StatusOK || a.json(t)["status"] != "ACTIVE" {
			t.Errorf("%s: %d %s", e.id, a.status, a.body)
		}
	}
	// The refunded purchase, told once more, does not take the other one's item away.
	if a := s.binary(purchase("completed", "e6", "u_1", "item1", "p_1")); a.status != http.StatusOK || a.json(t)["status"] != "ACTIVE" {
		t.Errorf("the refunded one after another: %d %s", a.status, a.body)
	}
	// Who grants by request means it: that is no purchase event.
	s.binary(purchase("refunded", "e7", "u_1", "item1", "p_2"))
	if a := s.post(grantsPath, "support", changeBody("u_1", "item1", "goodwill", "p_1")); a.json(t)["status"] != "ACTIVE" {
		t.Errorf("grant by request: %s", a.body)
	}
}

// Purchase and refund at the same moment, many times: every item ends REVOKED.
func TestPurchaseAndRefundAtOnce(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	const items = 100
	atOnce(2*items, func(i int) {
		kind := []string{"completed", "refunded"}[i%2]
		e := purchase(kind, fmt.Sprint("e", i), "u_1", fmt.Sprint("item", i/2), fmt.Sprint("p_", i/2))
		if a := s.structured(e); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", kind, a.status, a.body)
		}
	})
	if n := s.count(`SELECT count(*) FROM entitlement.entitlements WHERE status = 'REVOKED' AND version = 2`); n != items {
		t.Errorf("%d of %d items are REVOKED", n, items)
	}
	// The last that others are told agrees.
	if n := s.count(`SELECT count(*) FROM entitlement.outbox_events WHERE event_type = 'EntitlementRevoked' AND (payload->>'version')::int = 2`); n != items {
		t.Errorf("%d of %d items end with EntitlementRevoked", n, items)
	}
}

// A late purchase whose refund came first does not take what another purchase
// gave in between.
func TestOvertakenPurchaseTakesNothing(t *testing.T) {
	t.Parallel()
	s := setup(t, "WAKES=false")
	for i, step := range []struct{ kind, purchase, status string }{
		{"purchase.refunded", "p_A", "REVOKED"},
		{"purchase.completed", "p_B", "ACTIVE"},
		{"purchase.completed", "p_A", "ACTIVE"},
	} {
		a := s.call(http.MethodPost, "/v1/events", s.writer, changeBody("u_1", "item1", "purchase", step.purchase),
			"ce-specversion: 1.0", "ce-source: /shop", fmt.Sprint("ce-id: e", i), "ce-type: "+step.kind)
		if a.status != http.StatusOK || a.json(t)["status"] != step.status || a.json(t)["version"] != float64(i+1) {
			t.Fatalf("step %d: %d %s", i, a.status, a.body)
		}
	}
}
