package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// OpenScope is the scope of keys for opening accounts; callers choose them.
const OpenScope = "open-account"

// Open is an account to be opened.
type Open struct {
	Client      string
	Key         string // chosen by the caller
	Owner       string
	Currency    string
	Balance     *Amount // nil for none
	Retention   time.Duration
	Traceparent string
}

// Opened is the answer to an Open.
type Opened struct {
	AccountID int64  `json:"accountId" example:"1"`
	OwnerID   string `json:"ownerUserId" example:"u_123"`
	Currency  string `json:"currency" example:"EUR"`
	Balance   Number `json:"balance" example:"100.5"`
}

// Number is a decimal, exact, as a JSON number.
type Number = json.Number

var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

// OpenAccount opens an account with a first balance, which is itself a transfer
// from the system's account of that currency. Errors: ErrLimit, fault.Invalid,
// idempotency.ErrReused, fault.Unavailable.
func (s *Store) OpenAccount(ctx context.Context, o Open) (idempotency.Response, error) {
	if !currencyCode.MatchString(o.Currency) {
		return idempotency.Response{}, fault.New(fault.Invalid, "currency_invalid", "The currency must be a code of three capital letters (ISO 4217), such as EUR.")
	}
	var amount, transferText *string
	transferID := id.New()
	balance := "0"
	if o.Balance != nil {
		balance = o.Balance.String()
		text := textID(transferID)
		amount, transferText = &balance, &text
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%q\n%s\n%s", OpenScope, o.Owner, o.Currency, balance))
	var outcome string
	var body *string
	err := postgres.Retry(ctx, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, `SELECT outcome, snapshot FROM `+openAccount.Called()+`($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
			o.Client, OpenScope, o.Key, sum[:], o.Retention, o.Owner, o.Currency, amount, transferID, transferText, o.Traceparent,
		).Scan(&outcome, &body)
	})
	if err != nil {
		return idempotency.Response{}, postgres.Wrap("open account", err)
	}
	switch outcome {
	case "REUSED":
		return idempotency.Response{}, idempotency.ErrReused
	case "LIMIT":
		return idempotency.Response{}, ErrLimit
	}
	return idempotency.Response{Status: 201, Body: []byte(*body), Replayed: outcome == "REPLAYED"}, nil
}
