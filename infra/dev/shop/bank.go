package shop

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// BankPath is where the demo bank describes its offer (GET) and opens an account for the
// caller (POST): one a day for each player, as long as the key is kept. To the gateway
// the bank is an operator.
const BankPath = "/demo/bank"

// What every player begins with.
const (
	bankCurrency = "EUR"
	bankBalance  = 100
)

// account is the gateway's answer when one is opened.
type account struct {
	AccountID int64       `json:"accountId"`
	OwnerID   string      `json:"ownerUserId"`
	Currency  string      `json:"currency"`
	Balance   json.Number `json:"balance"`
}

func (s *shop) registerBank(mux *http.ServeMux, bank *service) {
	mux.HandleFunc("GET "+BankPath, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"currency": bankCurrency, "balance": bankBalance})
	})
	mux.HandleFunc("POST "+BankPath, func(w http.ResponseWriter, r *http.Request) {
		opened, err := s.open(r, bank)
		if err != nil {
			s.failed(r, err)
			problem.Write(w, err)
			return
		}
		reply(w, opened)
	})
}

// open opens an account for the user whose browser sent r, or returns the one that they
// have: the key is the same each time.
func (s *shop) open(r *http.Request, bank *service) (opened account, err error) {
	if r.Header.Get("X-CSRF") != "1" || s.origin.Check(r) != nil {
		return opened, errCSRF
	}
	ctx, cancel := context.WithTimeout(r.Context(), orderTimeout)
	defer cancel()
	owner, err := bank.buyer(ctx, r)
	if err != nil {
		return opened, err
	}
	body, err := json.Marshal(map[string]any{"ownerUserId": owner, "currency": bankCurrency, "initialBalance": bankBalance})
	if err != nil {
		return opened, err
	}
	return opened, bank.retry(ctx, "/v1/accounts", "demo-bank-"+owner, body, &opened)
}

// failed logs what users are not shown.
func (s *shop) failed(r *http.Request, err error) {
	if kind := fault.Of(err); kind == fault.Internal || kind == fault.Unavailable {
		s.log.ErrorContext(r.Context(), "order failed", "error", err.Error())
	}
}
