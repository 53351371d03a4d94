// Package transfer moves money between accounts: exactly once for each key, to the
// last decimal, and never more than there is. A caller is issued a key and sends
// it with the request. Transaction A takes the key (take_key.sql); TX1 locks the key and
// both accounts, moves the money, records the transfer and its event, and stores the
// answer with the key (move_money.sql); TX2 writes the two ledger entries (ledger.go).
// If a process dies in between, the same request with the same key finds out how it ended.
//
// The sum over all accounts of a currency is 0 at every moment: first balances come
// from the system's account, the only one that may owe.
package transfer

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/groupcommit"
	"github.com/miniserversystem/miniserver/pkg/id"
)

// Statuses of a key that was used; see docs/architecture.md for the diagram.
const (
	InProgress = "IN_PROGRESS"
	Succeeded  = "SUCCEEDED"
	Failed     = "FAILED"
)

// Kinds of transfers.
const (
	Ordinary = "TRANSFER"
	Opening  = "OPENING"  // an account's first balance
	Reversal = "REVERSAL" // of another transfer
)

// Errors that callers see.
var (
	ErrKey = fault.New(fault.Malformed, "idempotency_key_unknown",
		"This Idempotency-Key was not issued to you, or it expired before it was used; get one with POST /v1/idempotency-keys.")
	ErrAccount    = fault.New(fault.NotFound, "account_unknown", "There is no such account of money, or it is not yours.")
	ErrTransfer   = fault.New(fault.NotFound, "transfer_not_found", "There is no such transfer, or none of yours.")
	ErrCurrencies = fault.New(fault.Invalid, "currencies_differ", "The accounts have different currencies; money moves within one.")
	ErrReversal   = fault.New(fault.Invalid, "reversal_of_a_reversal", "A reversal is not reversed; make a new transfer.")
	ErrSame       = fault.New(fault.Invalid, "same_account", "Send money to another account than it comes from.")
	ErrLimit      = fault.New(fault.Invalid, "currency_limit", "All first balances of a currency must stay below 10^15; open the account with less.")
	// ErrBusy: TX1 never began.
	ErrBusy = &fault.Error{
		Kind: fault.Unavailable, Code: "account_busy", RetryAfter: fault.DefaultRetryAfter,
		Detail: "Too many transfers wait, of this account or of all; send the same request with the same key again.",
	}
	ErrUnknown = &fault.Error{
		Kind: fault.Unavailable, Code: "outcome_unknown", RetryAfter: fault.DefaultRetryAfter,
		Detail: "Whether it was done is not known yet; send the same request with the same key again.",
	}
)

// Transfer is a movement of money.
type Transfer struct {
	ID            string    `json:"transferId" example:"t_01h455vb4pex5vsknk084sn02q"`
	FromAccountID int64     `json:"fromAccountId" example:"1"`
	ToAccountID   int64     `json:"toAccountId" example:"3"`
	Amount        Number    `json:"amount" doc:"Exact, up to 4 decimals." example:"30.0001"`
	Currency      string    `json:"currency" example:"EUR"`
	Kind          string    `json:"kind" enum:"TRANSFER,OPENING,REVERSAL"`
	Reverses      string    `json:"reverses,omitempty" doc:"The transfer that a REVERSAL takes back."`
	CreatedAt     time.Time `json:"createdAt"`
}

// MoneyAccount is where money is.
type MoneyAccount struct {
	ID        int64     `json:"accountId" example:"1"`
	OwnerID   string    `json:"ownerUserId" example:"u_123"`
	Currency  string    `json:"currency" example:"EUR"`
	Balance   Number    `json:"balance" doc:"Exact, up to 4 decimals." example:"69.9999"`
	CreatedAt time.Time `json:"createdAt"`
}

// Store moves money and reads where it is.
type Store struct {
	pool  *pgxpool.Pool
	takes groupcommit.Queue[movement, taken]
	moves groupcommit.Queue[movement, Answer]
	step  time.Duration // stepTimeout
}

// NewStore returns a store on pool.
func NewStore(pool *pgxpool.Pool) *Store {
	s := &Store{pool: pool}
	s.takes.Commit, s.takes.Keys = s.takeAll, movement.key
	s.moves.Commit, s.moves.Keys, s.moves.Shared = s.moveAll, movement.key, movement.accounts
	s.setStep(stepTimeout)
	return s
}

func (s *Store) setStep(d time.Duration) { s.step, s.takes.Patience, s.moves.Patience = d, d, d }

func textID(u uuid.UUID) string { return id.Text(id.Transfer, u) }

// parseID reads a transfer's id. Its error is ErrTransfer.
func parseID(text string) (uuid.UUID, error) {
	u, err := id.Parse(id.Transfer, text)
	if err != nil {
		return uuid.Nil, ErrTransfer
	}
	return u, nil
}
