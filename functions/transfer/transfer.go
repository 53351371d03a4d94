// Package transfer is the function that moves money between accounts and shows
// where it is.
package transfer

import (
	"context"
	"net/http"

	"github.com/miniserversystem/miniserver/functions/internal/transfers"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/spans"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// The routes that move money: a key, a transfer with it, and a reversal.
var (
	IssueKey = fn.Route{
		ID: "issue-idempotency-key", Method: http.MethodPost, Path: "/v1/idempotency-keys", Bodyless: true,
		Summary:     "Get a key for one transfer",
		Description: "It belongs to the caller and waits 30 minutes to be used.",
		// Each request leaves a row for an hour and a half.
		Quota: fn.Quota{PerMinute: 600, Burst: 600},
	}
	Send = fn.Route{
		ID: "transfer", Method: http.MethodPost, Path: "/v1/transfers", Self: true,
		Refuses: []int{http.StatusNotFound, http.StatusConflict},
		Summary: "Send money",
		Description: "From an account of the caller's. The Idempotency-Key is one of POST /v1/idempotency-keys. 200 with SUCCEEDED or FAILED is the answer for good: " +
			"the same request gets the same bytes again, and a new try needs a new key. 202 IN_PROGRESS: send the same request again shortly.",
	}
	Get = fn.Route{
		ID: "get-transfer", Method: http.MethodGet, Path: "/v1/transfers/{transfer_id}", Self: true, AnyUserRoles: []string{auth.RoleOperator},
		Refuses: []int{http.StatusNotFound},
		Summary: "Read a transfer",
	}
	Reverse = fn.Route{
		ID: "reverse-transfer", Method: http.MethodPost, Path: "/v1/transfers/{transfer_id}/reversals", Bodyless: true,
		Refuses:     []int{http.StatusNotFound, http.StatusConflict},
		Summary:     "Take a transfer back",
		Description: "A new transfer in the other direction, which names the one that it reverses; once each. FAILED when the money is no longer there.",
		Roles:       []string{auth.RoleOperator},
	}
)

type function struct {
	env     *fn.Env
	store   *transfer.Store
	metrics *transfers.Metrics
	// wake is called when there is a transfer to publish and to enter into the ledger.
	wake func()
}

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("transfer")
	if err != nil {
		return err
	}
	metrics, err := transfers.NewMetrics(e)
	if err != nil {
		return err
	}
	relay, ledger := e.Waker("relay"), e.Waker("ledger")
	f := &function{e, transfer.NewStore(pool), metrics, func() { relay(); ledger() }}
	fn.Handle(e, IssueKey, f.issueKey, fn.Creates)
	running := fn.Answers[inProgress](http.StatusAccepted, "The first request with this key runs; send the same again shortly.")
	fn.Handle(e, Send, f.send, fn.Stores[answer](http.StatusOK), running)
	fn.Handle(e, Get, f.get)
	fn.Handle(e, Reverse, f.reverse, fn.Stores[answer](http.StatusOK), running)
	fn.Handle(e, Accounts, f.accounts)
	fn.Handle(e, Open, f.open, fn.Stores[transfer.Opened](http.StatusCreated))
	fn.Handle(e, Account, f.account)
	fn.Handle(e, Transfers, f.transfers)
	fn.Handle(e, Ledger, f.ledger)
	fn.Handle(e, BalanceCheck, f.checkBalances)
	return nil
}

// answer documents the answer to a transfer.
type answer struct {
	TransferID string `json:"transferId,omitempty" doc:"There when it SUCCEEDED." example:"t_01h455vb4pex5vsknk084sn02q"`
	Status     string `json:"status" enum:"SUCCEEDED,FAILED"`
	ErrorCode  string `json:"errorCode,omitempty" enum:"INSUFFICIENT_BALANCE,BALANCE_LIMIT,ALREADY_REVERSED,TIMEOUT,ROLLED_BACK" doc:"Why it FAILED."`
}

type inProgress struct {
	Status string `json:"status" enum:"IN_PROGRESS"`
}

type issued struct {
	Status int
	Body   transfer.Key
}

func (f *function) issueKey(ctx context.Context, _ *struct{}) (*issued, error) {
	key, err := f.store.IssueKey(ctx, auth.From(ctx).Subject)
	return &issued{http.StatusCreated, key}, err
}

type sendRequest struct {
	fn.KeyHeader
	Body struct {
		From   int64  `json:"fromAccountId" minimum:"1" doc:"An account of the caller's." example:"1"`
		To     int64  `json:"toAccountId" minimum:"1" example:"3"`
		Amount amount `json:"amount" doc:"More than 0, up to 15 digits before the point and 4 behind it, written without an exponent; it is never rounded." example:"30.0001"`
	}
}

func (f *function) send(ctx context.Context, in *sendRequest) (*fn.Stored, error) {
	parsed, err := transfer.ParseAmount(in.Body.Amount.text)
	if err != nil {
		return nil, err
	}
	caller := auth.From(ctx)
	a, err := f.store.Transfer(ctx, transfer.Request{
		Client: caller.Subject, Key: in.Key(), Owner: caller.UserID,
		From: in.Body.From, To: in.Body.To, Amount: parsed, Traceparent: spans.Traceparent(ctx),
	})
	return f.stored(ctx, in.Key(), a, err)
}

type reverseRequest struct {
	fn.KeyHeader
	TransferPath
}

func (f *function) reverse(ctx context.Context, in *reverseRequest) (*fn.Stored, error) {
	a, err := f.store.Reverse(ctx, transfer.Request{
		Client: auth.From(ctx).Subject, Key: in.Key(), Traceparent: spans.Traceparent(ctx),
	}, in.TransferID)
	return f.stored(ctx, in.Key(), a, err)
}

// stored is the answer to a transfer; it wakes the functions that come next.
func (f *function) stored(ctx context.Context, key string, a transfer.Answer, err error) (*fn.Stored, error) {
	if err != nil {
		return nil, err
	}
	if a.Status != transfer.InProgress && !a.Replayed {
		transferID, code := a.Outcome()
		if code != transfer.TimedOut { // the watchdog counts those
			f.metrics.Ended(ctx, a.Status, code, a.Dwell)
		}
		line := []any{"idempotency_key", key, "transferId", transferID, "status", a.Status, "error_code", code}
		if a.EventID != "" {
			line = append(line, "event_id", a.EventID)
		}
		f.env.Logger().InfoContext(ctx, "transfer", line...)
	}
	if a.Status == transfer.InProgress {
		return fn.NewStored(idempotency.Response{Status: http.StatusAccepted, Body: []byte(`{"status":"IN_PROGRESS"}`)}), nil
	}
	if a.Status == transfer.Succeeded && !a.Replayed {
		f.wake()
	}
	return fn.NewStored(idempotency.Response{Status: http.StatusOK, Body: a.Body, Replayed: a.Replayed}), nil
}

// TransferPath is embedded in the input of routes about one transfer.
type TransferPath struct {
	TransferID string `path:"transfer_id" maxLength:"64" doc:"Which." example:"t_01h455vb4pex5vsknk084sn02q"`
}

func (f *function) get(ctx context.Context, in *TransferPath) (*struct{ Body transfer.Transfer }, error) {
	caller := auth.From(ctx)
	var found transfer.Transfer
	var err error
	if caller.Has(Get.AnyUserRoles...) {
		found, err = f.store.Get(ctx, in.TransferID)
	} else {
		found, err = f.store.GetOf(ctx, caller.UserID, in.TransferID)
	}
	return &struct{ Body transfer.Transfer }{found}, err
}
