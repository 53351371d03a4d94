package functions_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// opened opens an account for a user and returns its id.
func (s *system) opened(operator, user, balance string) string {
	s.t.Helper()
	a := s.call(http.MethodPost, "/v1/accounts", operator, `{"ownerUserId":"`+user+`","currency":"EUR","initialBalance":`+balance+`}`, "Idempotency-Key: "+user+balance)
	wantStatus(s.t, a, http.StatusCreated)
	return fmt.Sprint(a.json(s.t)["accountId"])
}

// transferKey gets a key for one transfer.
func (s *system) transferKey(token string) string {
	s.t.Helper()
	a := s.call(http.MethodPost, "/v1/idempotency-keys", token, "")
	wantStatus(s.t, a, http.StatusCreated)
	return a.json(s.t)["idempotencyKey"].(string)
}

func (s *system) pay(token, key, from, to, amount string) answer {
	s.t.Helper()
	return s.call(http.MethodPost, "/v1/transfers", token, `{"fromAccountId":`+from+`,"toAccountId":`+to+`,"amount":`+amount+`}`, "Idempotency-Key: "+key)
}

// Money moves once, to the last decimal, and both owners are told.
func TestMoneyMoves(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t)
	moneyMoves(t, s, people)
}

func moneyMoves(t *testing.T, s *system, people *signedIssuer) {
	operator := people.token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice, bob := people.player(t, "alice"), people.player(t, "bob")
	from, to := s.opened(operator, s.userID(alice), "123456789012345.6789"), s.opened(operator, s.userID(bob), "0")
	key := s.transferKey(alice)
	first := s.pay(alice, key, from, to, "0.0001")
	wantStatus(t, first, http.StatusOK)
	again := s.call(http.MethodPost, "/v1/transfers", alice, ` { "amount" : 0.00010, "toAccountId":`+to+`,"fromAccountId":`+from+`}`, "Idempotency-Key: "+key)
	if again.status != http.StatusOK || string(again.body) != string(first.body) || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %s", again.status, again.body)
	}
	wantProblem(t, s.pay(alice, key, from, to, "0.0002"), http.StatusConflict, "idempotency_key_reused")
	if a := s.call(http.MethodGet, "/v1/accounts/"+from, alice, ""); !strings.Contains(string(a.body), `"balance":123456789012345.6788`) {
		t.Errorf("%s", a.body)
	}
	if a := s.call(http.MethodGet, "/v1/accounts", bob, ""); !strings.Contains(string(a.body), `"balance":0.0001`) {
		t.Errorf("%s", a.body)
	}
	id := first.json(t)["transferId"].(string)
	wantStatus(t, s.call(http.MethodGet, "/v1/transfers/"+id, bob, ""), http.StatusOK)
	eventually(t, 10*time.Second, "the ledger has it", func() bool {
		return strings.Contains(string(s.call(http.MethodGet, "/v1/accounts/"+to+"/ledger", bob, "").body), id)
	})
	for token, direction := range map[string]string{alice: "SENT", bob: "RECEIVED"} {
		eventually(t, 10*time.Second, direction+" is told", func() bool {
			told := string(s.call(http.MethodGet, "/v1/me/notifications", token, "").body)
			return strings.Contains(told, id) && strings.Contains(told, `"direction":"`+direction+`"`)
		})
	}
	// What is not there cannot be sent, now and ever with this key.
	tooMuch := s.transferKey(bob)
	for range 2 {
		a := s.pay(bob, tooMuch, to, from, "1")
		if a.status != http.StatusOK || string(a.body) != `{"status":"FAILED","errorCode":"INSUFFICIENT_BALANCE"}` {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	// An operator takes it back, once.
	for want, key := range map[string]string{"SUCCEEDED": s.transferKey(operator)} {
		a := s.call(http.MethodPost, "/v1/transfers/"+id+"/reversals", operator, "", "Idempotency-Key: "+key)
		if a.status != http.StatusOK || a.json(t)["status"] != want {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if a := s.call(http.MethodPost, "/v1/transfers/"+id+"/reversals", operator, "", "Idempotency-Key: "+s.transferKey(operator)); a.json(t)["errorCode"] != "ALREADY_REVERSED" {
		t.Errorf("%s", a.body)
	}
	if n := s.count(`SELECT count(*) FROM core.account WHERE balance <> 0 AND account_id = ` + to); n != 0 {
		t.Error("it is not taken back")
	}
	report := s.call(http.MethodGet, "/v1/reconciliation", operator, "")
	if !strings.Contains(string(report.body), `"balanced":true,"currencies":[{"currency":"EUR","accounts":2,"held":123456789012345.6789,"issued":-123456789012345.6789,"total":0}]`) {
		t.Errorf("%d %s", report.status, report.body)
	}
}

// What is no transfer is refused, moves nothing, and leaves the key for the right one.
func TestTransferInput(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	operator := people.token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice, bob := people.player(t, "alice"), people.player(t, "bob")
	from, to := s.opened(operator, s.userID(alice), "10"), s.opened(operator, s.userID(bob), "10")
	key := s.transferKey(alice)
	for name, c := range map[string]struct {
		from, to, amount string
		status           int
		code             string
	}{
		"nothing":           {from, to, "0", 422, "amount_invalid"},
		"less than nothing": {from, to, "-1", 422, "amount_invalid"},
		"five decimals":     {from, to, "0.00001", 422, "amount_invalid"},
		"an exponent":       {from, to, "1e3", 422, "amount_invalid"},
		"a text":            {from, to, `"100"`, 422, "request_invalid"},
		"too much":          {from, to, "10000000000000000", 422, "amount_invalid"},
		"not a number":      {from, to, "NaN", 400, "request_malformed"},
		"null":              {from, to, "null", 422, "request_invalid"},
		"to itself":         {from, from, "1", 422, "same_account"},
		"to nobody":         {from, "999999", "1", 404, "account_unknown"},
		"another's money":   {to, from, "1", 404, "account_unknown"},
		"account 0":         {"0", to, "1", 422, "request_invalid"},
		"account 1.5":       {"1.5", to, "1", 422, "request_invalid"},
		"account 2^63":      {"9223372036854775808", to, "1", 422, "request_invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			wantProblem(t, s.in(t).pay(alice, key, c.from, c.to, c.amount), c.status, c.code)
		})
	}
	wantProblem(t, s.pay(bob, key, to, from, "1"), http.StatusBadRequest, "idempotency_key_unknown")
	wantProblem(t, s.pay(alice, "made up", from, to, "1"), http.StatusBadRequest, "idempotency_key_unknown")
	wantProblem(t, s.call(http.MethodPost, "/v1/transfers", alice, `{"fromAccountId":1,"toAccountId":2,"amount":1}`), http.StatusBadRequest, "idempotency_key_missing")
	if n := s.count(`SELECT count(*) FROM core.transfer WHERE kind = 'TRANSFER'`); n != 0 {
		t.Errorf("%d transfers", n)
	}
	wantStatus(t, s.pay(alice, key, from, to, "1"), http.StatusOK)
}
