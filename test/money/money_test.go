package money_test

import (
	"net/http"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// Money moves once, to the last decimal, and both owners are notified.
func TestMoneyMoves(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t)
	system.MoneyMoves(t, s, people)
}

// An invalid transfer is refused, moves nothing, and leaves its key usable.
func TestTransferInput(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	operator := people.Token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	from, to := s.Opened(operator, s.UserID(alice), "10"), s.Opened(operator, s.UserID(bob), "10")
	key := s.TransferKey(alice)
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
			system.WantProblem(t, s.In(t).Pay(alice, key, c.from, c.to, c.amount), c.status, c.code)
		})
	}
	system.WantProblem(t, s.Pay(bob, key, to, from, "1"), http.StatusBadRequest, "idempotency_key_unknown")
	system.WantProblem(t, s.Pay(alice, "made up", from, to, "1"), http.StatusBadRequest, "idempotency_key_unknown")
	system.WantProblem(t, s.Call(http.MethodPost, "/v1/transfers", alice, `{"fromAccountId":1,"toAccountId":2,"amount":1}`), http.StatusBadRequest, "idempotency_key_missing")
	if n := s.Count(`SELECT count(*) FROM core.transfer WHERE kind = 'TRANSFER'`); n != 0 {
		t.Errorf("%d transfers, want 0", n)
	}
	system.WantStatus(t, s.Pay(alice, key, from, to, "1"), http.StatusOK)
}
