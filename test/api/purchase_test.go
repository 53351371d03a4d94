package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A purchase grants and a refund revokes, in both modes.
func TestPurchaseEvents(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for mode, send := range map[string]func(system.CloudEvent) system.Answer{
		"binary":     func(e system.CloudEvent) system.Answer { return s.Binary(e) },
		"structured": s.Structured,
	} {
		bought := send(system.Purchase("completed", mode+"1", "u_1", mode, "p_1"))
		if bought.Status != http.StatusOK || bought.JSON(t)["status"] != "ACTIVE" || bought.Header.Get("ETag") != `"1"` {
			t.Fatalf("%s: the purchase is answered %d %v %s, want ACTIVE at version 1", mode, bought.Status, bought.Header, bought.Body)
		}
		refunded := send(system.Purchase("refunded", mode+"2", "u_1", mode, "p_1"))
		if refunded.Status != http.StatusOK || refunded.JSON(t)["status"] != "REVOKED" || refunded.Header.Get("ETag") != `"2"` {
			t.Fatalf("%s: the refund is answered %d %v %s, want REVOKED at version 2", mode, refunded.Status, refunded.Header, refunded.Body)
		}
	}
	// Its outbox events are the same as those of a request.
	if n := s.Count(`SELECT count(*) FROM entitlement.outbox_events WHERE payload->>'source' = 'completed' AND payload->>'source_id' = 'p_1'`); n != 2 {
		t.Errorf("%d outbox events have the purchase as their source, want 2", n)
	}
}

// An event may come any number of times, in either mode, and counts once.
func TestRedeliveredEvent(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	e := system.Purchase("completed", "e1", "u_1", "item1", "p_1")
	first := s.Binary(e)
	system.WantStatus(t, first, http.StatusOK)
	rows := s.Rows()
	system.WantReplay(t, first, s.Binary(e))
	system.WantReplay(t, first, s.Structured(e))
	e.Data = strings.Replace(e.Data, ",", " ,\n", 1)
	system.WantReplay(t, first, s.Binary(e))
	// An Idempotency-Key is not part of an event.
	system.WantReplay(t, first, s.Binary(e, "Idempotency-Key: another"))
	if after := s.Rows(); after != rows {
		t.Fatalf("a redelivery left rows:\n%s\n%s", rows, after)
	}
	system.AtOnce(32, func(int) {
		if a := s.Structured(system.Purchase("completed", "e2", "u_1", "item2", "p_2")); a.Status != http.StatusOK || a.JSON(t)["version"] != 1.0 {
			t.Errorf("another event is answered %d %s, want 200 at version 1", a.Status, a.Body)
		}
	})
	if n := s.Count(`SELECT count(*) FROM entitlement.outbox_events`); n != 2 {
		t.Errorf("%d outbox events, want 2", n)
	}
}

// Headers carry other characters than ASCII percent-encoded (CloudEvents HTTP binding
// 1.0.2, 3.1.3.4): the event is the same in either mode.
func TestRedeliveredInTheOtherMode(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for plain, encoded := range map[string]string{"e 1": "e%201", "é": "%C3%A9", `"`: "%22", "100%": "100%25"} {
		e := system.Purchase("completed", plain, "u_1", "item1", "p_1")
		first := s.Structured(e)
		system.WantStatus(t, first, http.StatusOK)
		e.ID = encoded
		if second := s.Binary(e); second.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%q as %s counted twice: %d %s", plain, encoded, second.Status, second.Body)
		}
	}
}

// Source and id together identify an event, however odd they are.
func TestEventIdentity(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	long := strings.Repeat("x", 900)
	names := [][2]string{
		{"/shop", "1"},
		{"/shop/other", "1"},
		{"/shop", "2"},
		{"/shop", "1 "},
		{"/shop", "+1"},
		{"/shop", "%201"},
		{"/a", "b/c"},
		{"/a/b", "c"},
		{"a%20b", "c"},
		{"urn:x:é", "1"},
		{"urn:x", "é1"},
		{"/" + long, "1"},
		{"/" + long, "2"},
		{"/" + long + "y", "1"},
		{"/", long},
		{"/", long + "z"},
	}
	for i, name := range names {
		a := s.Structured(system.CloudEvent{ID: name[1], Source: name[0], Kind: "purchase.completed", Data: system.ChangeBody("u_1", "item1", "purchase", "p_1")})
		if a.Status != http.StatusOK || a.JSON(t)["version"] != float64(i+1) {
			t.Errorf("%q: answered %d %.300s, want 200 at version %d", name, a.Status, a.Body, i+1)
		}
	}
	// Nor does an event take the key of a request, even of one that looks like it.
	system.WantStatus(t, s.Grant("%2Fshop 1", "u_1", "item9"), http.StatusOK)
}

// The events of one item may come in any order, but a refunded purchase never gives the
// item back; another purchase does.
func TestRefundOvertakesPurchase(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	first := s.Binary(system.Purchase("refunded", "e1", "u_1", "item1", "p_1"))
	if first.Status != http.StatusOK || first.JSON(t)["status"] != "REVOKED" || first.Header.Get("ETag") != `"1"` {
		t.Fatalf("the early refund is answered %d %s, want REVOKED at version 1", first.Status, first.Body)
	}
	late := s.Binary(system.Purchase("completed", "e2", "u_1", "item1", "p_1"))
	if late.Status != http.StatusOK || late.JSON(t)["status"] != "REVOKED" || late.Header.Get("ETag") != `"2"` {
		t.Fatalf("its late purchase is answered %d %s, want REVOKED at version 2", late.Status, late.Body)
	}
	if n := s.Count(`SELECT count(*) FROM entitlement.outbox_events WHERE event_type = 'EntitlementGranted'`); n != 0 {
		t.Error("there is an event for a grant that never happened")
	}
	// The refund is remembered after its key is forgotten.
	if n := s.Count(`WITH gone AS (DELETE FROM entitlement.idempotency_keys RETURNING 1) SELECT count(*) FROM gone`); n != 2 {
		t.Fatalf("%d keys, want 2", n)
	}
	if a := s.Binary(system.Purchase("completed", "e2", "u_1", "item1", "p_1")); a.Status != http.StatusOK || a.JSON(t)["status"] != "REVOKED" {
		t.Errorf("the purchase long after its refund is answered %d %s, want REVOKED", a.Status, a.Body)
	}
	// The refund counts for one purchase of one item by one user.
	for _, e := range []system.CloudEvent{
		system.Purchase("completed", "e3", "u_1", "item1", "p_2"),
		system.Purchase("completed", "e4", "u_1", "item2", "p_1"),
		system.Purchase("completed", "e5", "u_2", "item1", "p_1"),
	} {
		if a := s.Binary(e); a.Status != http.StatusOK || a.JSON(t)["status"] != "ACTIVE" {
			t.Errorf("%s: answered %d %s, want ACTIVE", e.ID, a.Status, a.Body)
		}
	}
	// The refunded purchase, sent once more, does not revoke what another one granted.
	if a := s.Binary(system.Purchase("completed", "e6", "u_1", "item1", "p_1")); a.Status != http.StatusOK || a.JSON(t)["status"] != "ACTIVE" {
		t.Errorf("the refunded purchase after another one is answered %d %s, want ACTIVE", a.Status, a.Body)
	}
	// A grant by request is deliberate, and not a purchase event.
	s.Binary(system.Purchase("refunded", "e7", "u_1", "item1", "p_2"))
	if a := s.Post(system.GrantsPath, "support", system.ChangeBody("u_1", "item1", "goodwill", "p_1")); a.JSON(t)["status"] != "ACTIVE" {
		t.Errorf("a grant by request is answered %s, want ACTIVE", a.Body)
	}
}

// Purchase and refund of many items at the same moment: every item ends REVOKED.
func TestPurchaseAndRefundAtOnce(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	const items = 32
	system.AtOnce(2*items, func(i int) {
		kind := []string{"completed", "refunded"}[i%2]
		e := system.Purchase(kind, fmt.Sprint("e", i), "u_1", fmt.Sprint("item", i/2), fmt.Sprint("p_", i/2))
		// So many at once may wait for a connection longer than a busy machine allows.
		var a system.Answer
		kit.Soon(func() bool { a = s.Structured(e); return a.Status != http.StatusServiceUnavailable })
		if a.Status != http.StatusOK {
			t.Errorf("%s is answered %d %s, want 200", kind, a.Status, a.Body)
		}
	})
	if n := s.Count(`SELECT count(*) FROM entitlement.entitlements WHERE status = 'REVOKED' AND version = 2`); n != items {
		t.Errorf("%d of %d items are REVOKED", n, items)
	}
	// The last event of each item agrees.
	if n := s.Count(`SELECT count(*) FROM entitlement.outbox_events WHERE event_type = 'EntitlementRevoked' AND (payload->>'version')::int = 2`); n != items {
		t.Errorf("%d of %d items end with EntitlementRevoked", n, items)
	}
}

// A late purchase whose refund came first does not revoke what another purchase granted
// in between.
func TestOvertakenPurchaseTakesNothing(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for i, step := range []struct{ kind, purchase, status string }{
		{"purchase.refunded", "p_A", "REVOKED"},
		{"purchase.completed", "p_B", "ACTIVE"},
		{"purchase.completed", "p_A", "ACTIVE"},
	} {
		a := s.Call(http.MethodPost, "/v1/events", s.Writer, system.ChangeBody("u_1", "item1", "purchase", step.purchase),
			"ce-specversion: 1.0", "ce-source: /shop", fmt.Sprint("ce-id: e", i), "ce-type: "+step.kind)
		if a.Status != http.StatusOK || a.JSON(t)["status"] != step.status || a.JSON(t)["version"] != float64(i+1) {
			t.Fatalf("step %d: answered %d %s, want %s at version %d", i, a.Status, a.Body, step.status, i+1)
		}
	}
}
