package console

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/account"
	"github.com/miniserversystem/miniserver/pkg/act"
	"github.com/miniserversystem/miniserver/pkg/deadletter"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// queue is something that rows or messages can be stuck in.
type queue struct {
	name  string
	kinds []string // of acts
	desk  *act.Desk
	table lease.Finished // of rows, if it has a name
	box   deadletter.Box // of messages, if it has a table
}

func (q queue) hasRows() bool    { return q.table.Name != "" }
func (q queue) hasLetters() bool { return q.box.Table != "" }

// backlog counts the rows that are not done.
func (q queue) backlog(ctx context.Context) ([]lease.Waiting, error) {
	return lease.Backlog(ctx, q.table.Pool, q.table.Name, q.table.Done)
}

// quiet is longer than the broker takes a repeated event for a duplicate.
const quiet = 2*time.Minute + 10*time.Second

func (f *function) setUpQueues(accounts, entitlements, notifications, transfers *pgxpool.Pool) {
	ofAccounts, ofEntitlements := act.NewDesk(accounts, "account.acts"), act.NewDesk(entitlements, "entitlement.acts")
	ofNotifications, ofTransfers := act.NewDesk(notifications, "notification.acts"), act.NewDesk(transfers, "integration.acts")
	f.desks = []*act.Desk{ofAccounts, ofEntitlements, ofNotifications, ofTransfers}
	memory := f.env.Settings.ProcessedRetention - settings.RememberedLonger
	rows := func(name string, desk *act.Desk, table lease.Finished, republish bool) {
		q := queue{name: name, desk: desk, table: table, kinds: []string{act.Requeue}}
		desk.Does(act.Requeue, name, table.Requeue())
		if republish {
			q.kinds = append(q.kinds, act.Republish)
			desk.Does(act.Republish, name, table.Republish(quiet, memory))
		}
		f.queues = append(f.queues, q)
	}
	rows("entitlement-outbox", ofEntitlements, outbox.Finished(entitlements, entitlement.OutboxTable), true)
	rows("transfer-outbox", ofTransfers, outbox.Finished(transfers, transfer.OutboxTable), true)
	rows("notifications", ofNotifications, f.notifications.Finished(), false)

	letters := func(name string, desk *act.Desk, box deadletter.Box, replay act.Work) {
		desk.Does(act.Replay, name, replay).Does(act.Discard, name, box.Discard())
		f.queues = append(f.queues, queue{name: name, desk: desk, box: box, kinds: []string{act.Replay, act.Discard}})
	}
	unread, unsettled := f.notifications.Letters(), f.transfers.Letters()
	letters("notification-letters", ofNotifications, unread, unread.Replay(f.notifications.AcceptAll, notification.Poison))
	letters("settlement-letters", ofTransfers, unsettled, unsettled.Replay(f.transfers.AcceptAll, f.transfers.Poison))

	ofAccounts.Does(act.SignOut, "sessions", signOut{f}).Does(act.Erase, accountQueue, erase{f})
	f.queues = append(f.queues, queue{name: "sessions", desk: ofAccounts, kinds: []string{act.SignOut}},
		queue{name: accountQueue, desk: ofAccounts, kinds: []string{act.Erase}})
}

var errQueue = fault.New(fault.NotFound, "queue_not_found",
	"There is no such queue. FAILED rows are in entitlement-outbox, transfer-outbox and notifications, dead letters in notification-letters and settlement-letters.")

func (f *function) queue(name string) (queue, error) {
	at := slices.IndexFunc(f.queues, func(q queue) bool { return q.name == name })
	if at < 0 {
		return queue{}, errQueue
	}
	return f.queues[at], nil
}

// QueuePath is the path of a queue. It is exported because huma fills exported embedded
// structs only.
type QueuePath struct {
	Queue string `path:"queue" maxLength:"64" doc:"Which." example:"notifications"`
}

// Filter is act.Filter as a query.
type Filter struct {
	ID            string    `query:"id" maxLength:"64" doc:"This one."`
	EventType     string    `query:"event_type" maxLength:"255" doc:"Of this type."`
	Owner         string    `query:"owner" maxLength:"255" doc:"Of this user or aggregate; dead letters have none."`
	ErrorContains string    `query:"error_contains" maxLength:"200" doc:"Whose last error contains this text."`
	FailedFrom    time.Time `query:"failed_from" doc:"That failed at this time or later."`
	FailedBefore  time.Time `query:"failed_before" doc:"That failed before this time."`
}

func (q Filter) filter() act.Filter {
	f := act.Filter{EventType: q.EventType, Owner: q.Owner, ErrorContains: q.ErrorContains}
	if q.ID != "" {
		f.IDs = []string{q.ID}
	}
	if !q.FailedFrom.IsZero() {
		f.FailedFrom = &q.FailedFrom
	}
	if !q.FailedBefore.IsZero() {
		f.FailedBefore = &q.FailedBefore
	}
	return f
}

type listRequest struct {
	QueuePath
	Filter
	fn.Page
}

type failedList struct {
	Failed []lease.FailedRow `json:"failed" nullable:"false"`
	fn.NextPage
}

func (f *function) listFailed(ctx context.Context, in *listRequest) (*struct{ Body failedList }, error) {
	q, err := f.queue(in.Queue)
	if err == nil && !q.hasRows() {
		err = errQueue
	}
	if err != nil {
		return nil, err
	}
	list, next, err := q.table.List(ctx, in.filter(), in.Cursor, in.Limit)
	return &struct{ Body failedList }{failedList{list, fn.NextPage{NextCursor: next}}}, err
}

type letterList struct {
	Letters []deadletter.Kept `json:"letters" nullable:"false"`
	fn.NextPage
}

func (f *function) listLetters(ctx context.Context, in *listRequest) (*struct{ Body letterList }, error) {
	q, err := f.queue(in.Queue)
	if err == nil && !q.hasLetters() {
		err = errQueue
	}
	if err != nil {
		return nil, err
	}
	list, next, err := q.box.List(ctx, in.filter(), in.Cursor, min(in.Limit, maxLetters))
	return &struct{ Body letterList }{letterList{list, fn.NextPage{NextCursor: next}}}, err
}

// maxLetters bounds a page of letters, of which each may show 16 KiB of its message and as
// much again of its headers.
const maxLetters = 20

// ownerOf returns the account that a filter names, by its owner and nothing else; an empty
// one if nobody signs in with that user id.
func ownerOf(ctx context.Context, accounts *account.Store, filter act.Filter) (account.Account, error) {
	if !reflect.DeepEqual(filter, act.Filter{Owner: filter.Owner}) {
		return account.Account{}, errOwnerOnly
	}
	user, err := accounts.Of(ctx, filter.Owner)
	if errors.Is(err, account.ErrNotFound) {
		return account.Account{}, nil
	}
	return user, err
}

var errOwnerOnly = fault.New(fault.Invalid, "filter_invalid", "Acts on a person take the filter owner, their user id, and no other.")

// signOut ends all sessions of the user that the filter names.
type signOut struct{ *function }

func (s signOut) each(ctx context.Context, filter act.Filter, do func(issuer, subject string) (int, error)) (total int, err error) {
	user, err := ownerOf(ctx, s.accounts, filter)
	if err != nil {
		return 0, err
	}
	for _, identity := range user.Identities {
		n, err := do(identity.Issuer, identity.Subject)
		if err != nil {
			return total, err
		}
		total += n
	}
	return total, nil
}

// Count counts the sessions.
func (s signOut) Count(ctx context.Context, filter act.Filter) (int, error) {
	return s.each(ctx, filter, func(issuer, subject string) (int, error) { return s.sessions.Count(ctx, issuer, subject) })
}

// Batch ends all of them at once.
func (s signOut) Batch(ctx context.Context, _ pgx.Tx, a act.Act, _ int) (act.Progress, error) {
	n, err := s.each(ctx, a.Filter, func(issuer, subject string) (int, error) { return s.sessions.EndSubject(ctx, issuer, subject) })
	return act.Progress{Done: n}, err
}
