package system

import (
	"fmt"
	"net/http"
)

// Opened opens an account for a user and returns its id.
func (s *System) Opened(operator, user, balance string) string {
	s.T.Helper()
	a := s.Call(http.MethodPost, "/v1/accounts", operator, `{"ownerUserId":"`+user+`","currency":"EUR","initialBalance":`+balance+`}`, "Idempotency-Key: "+user+balance)
	WantStatus(s.T, a, http.StatusCreated)
	return fmt.Sprint(a.JSON(s.T)["accountId"])
}

// TransferKey gets a key for one transfer.
func (s *System) TransferKey(token string) string {
	s.T.Helper()
	a := s.Call(http.MethodPost, "/v1/idempotency-keys", token, "")
	WantStatus(s.T, a, http.StatusCreated)
	return a.JSON(s.T)["idempotencyKey"].(string)
}

// Pay requests a transfer; amount is JSON.
func (s *System) Pay(token, key, from, to, amount string) Answer {
	s.T.Helper()
	return s.Call(http.MethodPost, "/v1/transfers", token, `{"fromAccountId":`+from+`,"toAccountId":`+to+`,"amount":`+amount+`}`, "Idempotency-Key: "+key)
}
