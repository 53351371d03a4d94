package console

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/account"
	"github.com/miniserversystem/miniserver/pkg/act"
	"github.com/miniserversystem/miniserver/pkg/cursor"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// Export is the route by which a person gets what is kept about them.
var Export = fn.Route{
	ID: "export-user", Method: http.MethodPost, Path: "/v1/operations/users/{user_id}/export", Roles: actors, ShownTo: lookers,
	Refuses: []int{http.StatusConflict},
	Summary: "Export all that is kept about one person",
	Description: "As one document. The export itself is recorded as an act. Lists have up to 10,000 items; truncated names those that have more. " +
		"docs/privacy.md says what is kept where, and for how long. To erase a person, begin an act of the kind erase.",
}

// maxExported bounds each list of an export.
const maxExported = 10_000

type exported struct {
	ExportedAt    time.Time                   `json:"exported_at"`
	ActID         string                      `json:"act_id" doc:"The record of this export." example:"act_01h455vb4pex5vsknk084sn02q"`
	UserID        string                      `json:"user_id" example:"u_123"`
	Account       *account.Account            `json:"account,omitempty" doc:"Absent for a user id that nobody signs in with."`
	Sessions      int                         `json:"sessions" doc:"Browser sessions that may be alive." example:"1"`
	Entitlements  []ownedItem                 `json:"entitlements" nullable:"false"`
	Notifications []notification.Notification `json:"notifications" nullable:"false"`
	Tickets       []matchmaking.Ticket        `json:"tickets" nullable:"false"`
	Accounts      []moneyOf                   `json:"accounts" nullable:"false"`
	Truncated     []string                    `json:"truncated" nullable:"false" doc:"Lists that have more than 10,000 items." example:"[]"`
}

type ownedItem struct {
	entitlement.Entitlement
	History []entitlement.Audited `json:"history" nullable:"false"`
}

type moneyOf struct {
	transfer.MoneyAccount
	Transfers []transfer.Transfer `json:"transfers" nullable:"false"`
}

type exportRequest struct {
	fn.UserPath
	fn.KeyHeader
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" format:"printable" doc:"Why; it is kept with the act." example:"the person asked for it"`
	}
}

func (f *function) export(ctx context.Context, in *exportRequest) (*struct{ Body exported }, error) {
	document, err := f.exportOf(ctx, in.UserID, in.Body.Reason, in.Key())
	return &struct{ Body exported }{document}, err
}

// exportOf records the export before it reads anything: nobody sees a person's data
// unrecorded.
func (f *function) exportOf(ctx context.Context, userID, reason, key string) (exported, error) {
	q, err := f.queue(accountQueue)
	if err != nil {
		return exported{}, err
	}
	body, err := json.Marshal([]string{userID, reason})
	if err != nil {
		return exported{}, err
	}
	hash, err := idempotency.Fingerprint(act.Export, "", body)
	if err != nil {
		return exported{}, err
	}
	noted, err := q.desk.Note(ctx, act.Order{
		Act: act.Act{Kind: act.Export, Queue: accountQueue, Filter: act.Filter{Owner: userID}, Actor: actorOf(ctx), Reason: reason}, Key: key, Hash: hash,
	})
	if err != nil {
		return exported{}, err
	}
	return f.collect(ctx, exported{ExportedAt: time.Now().UTC(), ActID: noted.ID, UserID: userID, Truncated: []string{}})
}

func (f *function) collect(ctx context.Context, e exported) (_ exported, err error) {
	if e.Account, err = f.account(ctx, e.UserID); err != nil {
		return e, err
	}
	if e.Sessions, err = f.countSessions(ctx, e.UserID); err != nil {
		return e, err
	}
	entitlements, err := all(&e, "entitlements", func(from string) ([]entitlement.Entitlement, string, error) {
		return f.entitlements.List(ctx, e.UserID, from, cursor.MaxPage)
	})
	if err != nil {
		return e, err
	}
	e.Entitlements = make([]ownedItem, len(entitlements))
	for i, owned := range entitlements {
		history, err := all(&e, "history", func(from string) ([]entitlement.Audited, string, error) {
			return f.entitlements.History(ctx, e.UserID, owned.StockKeepingUnit, from, cursor.MaxPage)
		})
		if err != nil {
			return e, err
		}
		e.Entitlements[i] = ownedItem{owned, history}
	}
	e.Notifications, err = all(&e, "notifications", func(from string) ([]notification.Notification, string, error) {
		return f.notifications.Inbox(ctx, e.UserID, from, cursor.MaxPage)
	})
	if err != nil {
		return e, err
	}
	if e.Tickets, err = f.players.Latest(ctx, e.UserID); err != nil {
		return e, err
	}
	accounts, err := all(&e, "accounts", func(from string) ([]transfer.MoneyAccount, string, error) {
		return f.transfers.Accounts(ctx, e.UserID, from, cursor.MaxPage)
	})
	if err != nil {
		return e, err
	}
	e.Accounts = make([]moneyOf, len(accounts))
	for i, money := range accounts {
		moved, err := all(&e, "transfers", func(from string) ([]transfer.Transfer, string, error) {
			return f.transfers.Transfers(ctx, money.ID, from, cursor.MaxPage)
		})
		if err != nil {
			return e, err
		}
		e.Accounts[i] = moneyOf{money, moved}
	}
	return e, nil
}

// all reads every page of a list, up to maxExported items.
func all[T any](e *exported, name string, page func(from string) ([]T, string, error)) ([]T, error) {
	list, from := []T{}, ""
	for {
		items, next, err := page(from)
		if err != nil {
			return nil, err
		}
		list = append(list, items...)
		switch {
		case next == "":
			return list, nil
		case len(list) >= maxExported:
			if !slices.Contains(e.Truncated, name) {
				e.Truncated = append(e.Truncated, name)
			}
			return list, nil
		}
		from = next
	}
}

// accountQueue is where acts on accounts are; its rows are people.
const accountQueue = "accounts"

// forgetAfter is when no gateway still has an identity's user id in its cache.
const forgetAfter = 2 * account.Memory

// aMoment is longer than the first step takes, and than the clocks of databases differ by.
const aMoment = 10 * time.Second

// watchdogTurn is how often an erasure looks whether a transfer that runs has ended.
const watchdogTurn = 10 * time.Second

// erase deletes a user's identities and personal data. The user id stays, as a pseudonym:
// the ledger and the audit must stay true, and refer to it.
//
// It has two steps. The first detaches the identities: a sign-in with one of them makes a
// new user from then on. The second deletes the rest, when gateways have forgotten the
// identities, because until then a request may still add to it. Between the two the record
// of the act holds the identities.
type erase struct{ *function }

// Count counts the identities of the user.
func (e erase) Count(ctx context.Context, filter act.Filter) (int, error) {
	user, err := ownerOf(ctx, e.accounts, filter)
	return len(user.Identities), err
}

// Batch does one of the steps.
func (e erase) Batch(ctx context.Context, tx pgx.Tx, a act.Act, limit int) (p act.Progress, err error) {
	userID := a.Filter.Owner
	if a.Position() == "" {
		var d detached
		if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&d.At); err != nil {
			return act.Progress{}, err
		}
		if d.Identities, err = account.Detach(ctx, tx, userID); err != nil {
			return act.Progress{}, err
		}
		if err := e.endSessions(ctx, d.Identities); err != nil {
			return act.Progress{}, err
		}
		position, err := json.Marshal(d)
		return act.Progress{Done: len(d.Identities), Position: string(position), More: true, Rest: forgetAfter}, err
	}
	d, err := detachedOf(a)
	if err != nil {
		return act.Progress{}, err
	}
	if !d.Ended { // once: a new user may have the identities
		if err := e.endSessions(ctx, d.Identities); err != nil {
			return act.Progress{}, err
		}
		d.Ended = true
	}
	for _, identity := range d.Identities {
		more, running, err := e.transfers.Pseudonymise(ctx, identity.Subject, userID, d.At.Add(account.Memory+aMoment))
		if err != nil {
			return act.Progress{}, err
		}
		if more || running {
			position, err := json.Marshal(d)
			p := act.Progress{Position: string(position), More: true}
			if !more {
				p.Rest = watchdogTurn
			}
			return p, err
		}
	}
	n, err := e.notifications.Erase(ctx, userID, limit)
	// The rest of the batches forget nobody: the identities may be a new user's.
	return act.Progress{Done: n, Position: "{}", More: err == nil && n == limit}, err
}

// detached is where an erasure is between its steps.
type detached struct {
	At         time.Time // by the accounts' database, before the identities were detached
	Identities []account.Identity
	Ended      bool // their sessions, in the second step
}

// detachedOf reads an act's position. That of an earlier version is the identities alone.
func detachedOf(a act.Act) (d detached, err error) {
	if position := a.Position(); position[0] == '[' {
		d.At = a.Begun()
		return d, json.Unmarshal([]byte(position), &d.Identities)
	}
	return d, json.Unmarshal([]byte(a.Position()), &d)
}

func (e erase) endSessions(ctx context.Context, identities []account.Identity) error {
	for _, identity := range identities {
		if _, err := e.sessions.EndSubject(ctx, identity.Issuer, identity.Subject); err != nil {
			return err
		}
	}
	return nil
}
