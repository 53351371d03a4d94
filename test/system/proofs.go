package system

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// MoneyMoves proves that transfers keep their promises, whatever lies between the
// functions and Postgres.
func MoneyMoves(t *testing.T, s *System, people *People) {
	operator := people.Token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	from, to := s.Opened(operator, s.UserID(alice), "123456789012345.6789"), s.Opened(operator, s.UserID(bob), "0")
	key := s.TransferKey(alice)
	first := s.Pay(alice, key, from, to, "0.0001")
	WantStatus(t, first, http.StatusOK)
	again := s.Call(http.MethodPost, "/v1/transfers", alice, ` { "amount" : 0.00010, "toAccountId":`+to+`,"fromAccountId":`+from+`}`, "Idempotency-Key: "+key)
	if again.Status != http.StatusOK || string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repeated request answered %d %s, want the replay of %s", again.Status, again.Body, first.Body)
	}
	WantProblem(t, s.Pay(alice, key, from, to, "0.0002"), http.StatusConflict, "idempotency_key_reused")
	if a := s.Call(http.MethodGet, "/v1/accounts/"+from, alice, ""); !strings.Contains(string(a.Body), `"balance":123456789012345.6788`) {
		t.Errorf("alice's account is %s, want the balance 123456789012345.6788", a.Body)
	}
	if a := s.Call(http.MethodGet, "/v1/accounts", bob, ""); !strings.Contains(string(a.Body), `"balance":0.0001`) {
		t.Errorf("bob's accounts are %s, want the balance 0.0001", a.Body)
	}
	id := first.JSON(t)["transferId"].(string)
	WantStatus(t, s.Call(http.MethodGet, "/v1/transfers/"+id, bob, ""), http.StatusOK)
	kit.Within(t, 10*time.Second, "the ledger has it", func() bool {
		return strings.Contains(string(s.Call(http.MethodGet, "/v1/accounts/"+to+"/ledger", bob, "").Body), id)
	})
	for token, direction := range map[string]string{alice: "SENT", bob: "RECEIVED"} {
		kit.Within(t, 10*time.Second, direction+" is notified", func() bool {
			inbox := string(s.Call(http.MethodGet, "/v1/me/notifications", token, "").Body)
			return strings.Contains(inbox, id) && strings.Contains(inbox, `"direction":"`+direction+`"`)
		})
	}
	// More than the balance cannot be sent, and the key keeps that answer.
	tooMuch := s.TransferKey(bob)
	for range 2 {
		a := s.Pay(bob, tooMuch, to, from, "1")
		if a.Status != http.StatusOK || string(a.Body) != `{"status":"FAILED","errorCode":"INSUFFICIENT_BALANCE"}` {
			t.Errorf("a transfer of too much answered %d %s, want INSUFFICIENT_BALANCE", a.Status, a.Body)
		}
	}
	// An operator can reverse the transfer, once.
	for want, key := range map[string]string{"SUCCEEDED": s.TransferKey(operator)} {
		a := s.Call(http.MethodPost, "/v1/transfers/"+id+"/reversals", operator, "", "Idempotency-Key: "+key)
		if a.Status != http.StatusOK || a.JSON(t)["status"] != want {
			t.Errorf("the reversal answered %d %s, want %s", a.Status, a.Body, want)
		}
	}
	if a := s.Call(http.MethodPost, "/v1/transfers/"+id+"/reversals", operator, "", "Idempotency-Key: "+s.TransferKey(operator)); a.JSON(t)["errorCode"] != "ALREADY_REVERSED" {
		t.Errorf("the second reversal answered %s, want ALREADY_REVERSED", a.Body)
	}
	if n := s.Count(`SELECT count(*) FROM core.account WHERE balance <> 0 AND account_id = ` + to); n != 0 {
		t.Error("the transfer is not reversed")
	}
	report := s.Call(http.MethodGet, "/v1/reconciliation", operator, "")
	if !strings.Contains(string(report.Body), `"balanced":true,"currencies":[{"currency":"EUR","accounts":2,"held":123456789012345.6789,"issued":-123456789012345.6789,"total":0}]`) {
		t.Errorf("the reconciliation answered %d %s, want balanced books", report.Status, report.Body)
	}
}

// OneKeyAtOnce proves that 64 requests at once with one key have one effect and one answer.
func OneKeyAtOnce(t *testing.T, s *System) {
	const clients = 64
	bodies := make([]string, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			a := s.Grant("same", "u_1", "item1")
			bodies[i] = fmt.Sprint(a.Status, " ", string(a.Body))
		})
	}
	group.Wait()
	for _, body := range bodies {
		if body != bodies[0] {
			t.Fatalf("answers differ:\n%s\n%s", bodies[0], body)
		}
	}
	for _, table := range []string{"entitlement.entitlements", "entitlement.outbox_events", "entitlement.entitlement_audit", "entitlement.idempotency_keys"} {
		if n := s.Count(`SELECT count(*) FROM ` + table); n != 1 {
			t.Errorf("%s has %d rows, want 1", table, n)
		}
	}
	if v := s.Count(`SELECT version FROM entitlement.entitlements`); v != 1 {
		t.Errorf("the entitlement's version is %d, want 1", v)
	}
}
