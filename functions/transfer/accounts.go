package transfer

import (
	"context"
	"net/http"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/spans"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// The routes about accounts.
var (
	Accounts = fn.Route{
		ID: "list-my-accounts", Method: http.MethodGet, Path: "/v1/accounts", Self: true,
		Summary: "List the caller's accounts",
	}
	Open = fn.Route{
		ID: "open-account", Method: http.MethodPost, Path: "/v1/accounts",
		Refuses:     []int{http.StatusConflict},
		Summary:     "Open an account",
		Description: "A first balance is itself a transfer from the system's account of that currency, the only one that may owe. The Idempotency-Key is the caller's choice, and remembered as other keys are.",
		Roles:       []string{auth.RoleOperator},
	}
	Account = fn.Route{
		ID: "get-money-account", Method: http.MethodGet, Path: "/v1/accounts/{account_id}", Self: true, AnyUserRoles: []string{auth.RoleOperator},
		Refuses: []int{http.StatusNotFound},
		Summary: "Read an account",
	}
	Transfers = fn.Route{
		ID: "list-account-transfers", Method: http.MethodGet, Path: "/v1/accounts/{account_id}/transfers", Self: true, AnyUserRoles: []string{auth.RoleOperator},
		Refuses:     []int{http.StatusNotFound},
		Summary:     "List an account's transfers",
		Description: "From it and to it, newest first.",
	}
	Ledger = fn.Route{
		ID: "list-account-ledger", Method: http.MethodGet, Path: "/v1/accounts/{account_id}/ledger", Self: true, AnyUserRoles: []string{auth.RoleOperator},
		Refuses:     []int{http.StatusNotFound},
		Summary:     "List an account's ledger entries",
		Description: "Newest first. Entries are written a moment after the transfer.",
	}
)

// BalanceCheck is the operators' report. Its path is older than the name: elsewhere, to
// reconcile is to publish again what a broker lost.
var BalanceCheck = fn.Route{
	ID: "reconcile-money", Method: http.MethodGet, Path: "/v1/reconciliation", Roles: []string{auth.RoleOperator},
	Summary:     "Compare balances with the ledger",
	Description: "As of one moment: the total of each currency, transfers without ledger entries, and, page by page, the accounts that do not hold what their ledger says. It reads all entries of the accounts of a page.",
}

type accountList struct {
	Accounts []transfer.MoneyAccount `json:"accounts" nullable:"false"`
	fn.NextPage
}

func (f *function) accounts(ctx context.Context, in *struct{ fn.Page }) (*struct{ Body accountList }, error) {
	list, next, err := f.store.Accounts(ctx, auth.From(ctx).UserID, in.Cursor, in.Limit)
	return &struct{ Body accountList }{accountList{list, fn.NextPage{NextCursor: next}}}, err
}

type openRequest struct {
	fn.KeyHeader
	Body struct {
		Owner    string `json:"ownerUserId" minLength:"1" maxLength:"128" format:"printable" doc:"Whose it is." example:"u_123"`
		Currency string `json:"currency" pattern:"^[A-Z]{3}$" doc:"ISO 4217 code." example:"EUR"`
		Balance  amount `json:"initialBalance,omitempty" required:"false" doc:"0 or more, up to 15 digits before the point and 4 behind it, written without an exponent; 0 when it is left out." example:"100.5"`
	}
}

func (f *function) open(ctx context.Context, in *openRequest) (*fn.Stored, error) {
	o := transfer.Open{
		Client: auth.From(ctx).Subject, Key: in.Key(), Owner: in.Body.Owner, Currency: in.Body.Currency,
		Retention: f.env.Settings.IdempotencyRetention, Traceparent: spans.Traceparent(ctx),
	}
	if text := in.Body.Balance.text; text != "" && !transfer.IsZero(text) {
		first, err := transfer.ParseAmount(text)
		if err != nil {
			return nil, err
		}
		o.Balance = &first
	}
	response, err := f.store.OpenAccount(ctx, o)
	if err != nil {
		return nil, err
	}
	if !response.Replayed && o.Balance != nil {
		f.wake()
	}
	return fn.NewStored(response), nil
}

// AccountPath is embedded in the input of routes about one account. huma does not see
// into embedded types that are not exported.
type AccountPath struct {
	AccountID int64 `path:"account_id" minimum:"1" doc:"Which." example:"1"`
}

// mine returns an account that the caller may see; transfer.ErrAccount otherwise.
func (f *function) mine(ctx context.Context, route fn.Route, accountID int64) (transfer.MoneyAccount, error) {
	found, err := f.store.Account(ctx, accountID)
	if err == nil && !route.MayReach(auth.From(ctx), found.OwnerID) {
		return transfer.MoneyAccount{}, transfer.ErrAccount
	}
	return found, err
}

func (f *function) account(ctx context.Context, in *AccountPath) (*struct{ Body transfer.MoneyAccount }, error) {
	found, err := f.mine(ctx, Account, in.AccountID)
	return &struct{ Body transfer.MoneyAccount }{found}, err
}

type accountPage struct {
	AccountPath
	fn.Page
}

type transferList struct {
	AccountID int64               `json:"accountId" example:"1"`
	Transfers []transfer.Transfer `json:"transfers" nullable:"false"`
	fn.NextPage
}

func (f *function) transfers(ctx context.Context, in *accountPage) (*struct{ Body transferList }, error) {
	if _, err := f.mine(ctx, Transfers, in.AccountID); err != nil {
		return nil, err
	}
	list, next, err := f.store.Transfers(ctx, in.AccountID, in.Cursor, in.Limit)
	return &struct{ Body transferList }{transferList{in.AccountID, list, fn.NextPage{NextCursor: next}}}, err
}

type entryList struct {
	AccountID int64            `json:"accountId" example:"1"`
	Entries   []transfer.Entry `json:"entries" nullable:"false"`
	fn.NextPage
}

func (f *function) ledger(ctx context.Context, in *accountPage) (*struct{ Body entryList }, error) {
	if _, err := f.mine(ctx, Ledger, in.AccountID); err != nil {
		return nil, err
	}
	list, next, err := f.store.Ledger(ctx, in.AccountID, in.Cursor, in.Limit)
	return &struct{ Body entryList }{entryList{in.AccountID, list, fn.NextPage{NextCursor: next}}}, err
}

func (f *function) checkBalances(ctx context.Context, in *struct{ fn.Page }) (*struct{ Body transfer.Report }, error) {
	report, err := f.store.CheckBalances(ctx, in.Cursor, in.Limit)
	return &struct{ Body transfer.Report }{report}, err
}
