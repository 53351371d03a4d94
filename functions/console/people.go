package console

import (
	"context"
	"errors"

	"github.com/miniserversystem/miniserver/pkg/account"
	"github.com/miniserversystem/miniserver/pkg/act"
	"github.com/miniserversystem/miniserver/pkg/cursor"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// person is all that is known of a user. Each part is up to a page.
type person struct {
	UserID        string                      `json:"user_id" example:"u_123"`
	Account       *account.Account            `json:"account,omitempty" doc:"Absent for a user id that nobody signed in with."`
	Sessions      int                         `json:"sessions" doc:"Browser sessions that may be alive." example:"1"`
	Entitlements  []entitlement.Entitlement   `json:"entitlements" nullable:"false"`
	Notifications []notification.Notification `json:"notifications" nullable:"false" doc:"Newest first."`
	Tickets       []matchmaking.Ticket        `json:"tickets" nullable:"false" doc:"The latest of each queue."`
	Accounts      []transfer.MoneyAccount     `json:"accounts" nullable:"false"`
	Away          []awayPart                  `json:"away" nullable:"false" doc:"Parts that could not be read."`
}

func (f *function) user(ctx context.Context, in *fn.UserPath) (*struct{ Body person }, error) {
	return &struct{ Body person }{f.person(ctx, in.UserID)}, nil
}

func (f *function) person(ctx context.Context, userID string) person {
	found := person{
		UserID: userID, Entitlements: []entitlement.Entitlement{}, Notifications: []notification.Notification{},
		Tickets: []matchmaking.Ticket{}, Accounts: []transfer.MoneyAccount{},
	}
	p := f.parts(ctx)
	read(p, "account", func(ctx context.Context) (*account.Account, error) { return f.account(ctx, userID) }, func(a *account.Account) { found.Account = a })
	read(p, "sessions", func(ctx context.Context) (int, error) { return f.countSessions(ctx, userID) }, func(n int) { found.Sessions = n })
	read(p, "entitlements", func(ctx context.Context) ([]entitlement.Entitlement, error) {
		list, _, err := f.entitlements.List(ctx, userID, "", cursor.MaxPage)
		return list, err
	}, func(list []entitlement.Entitlement) { found.Entitlements = list })
	read(p, "notifications", func(ctx context.Context) ([]notification.Notification, error) {
		list, _, err := f.notifications.Inbox(ctx, userID, "", cursor.MaxPage)
		return list, err
	}, func(list []notification.Notification) { found.Notifications = list })
	read(p, "tickets", func(ctx context.Context) ([]matchmaking.Ticket, error) { return f.players.Latest(ctx, userID) },
		func(list []matchmaking.Ticket) { found.Tickets = list })
	read(p, "accounts", func(ctx context.Context) ([]transfer.MoneyAccount, error) {
		list, _, err := f.transfers.Accounts(ctx, userID, "", cursor.MaxPage)
		return list, err
	}, func(list []transfer.MoneyAccount) { found.Accounts = list })
	p.group.Wait()
	found.Away = p.away
	return found
}

// account returns nil for a user who is unknown here: entitlements may be granted to ids
// that nobody has signed in with.
func (f *function) account(ctx context.Context, userID string) (*account.Account, error) {
	a, err := f.accounts.Of(ctx, userID)
	if errors.Is(err, account.ErrNotFound) {
		return nil, nil
	}
	return &a, err
}

func (f *function) countSessions(ctx context.Context, userID string) (int, error) {
	return signOut{f}.Count(ctx, act.Filter{Owner: userID})
}

type configuration struct {
	Schedule []scheduled        `json:"schedule" nullable:"false"`
	Settings []settings.InForce `json:"settings" nullable:"false"`
}

type scheduled struct {
	Function string   `json:"function" example:"relay"`
	Summary  string   `json:"summary" example:"publishes committed events from the outboxes"`
	Every    int64    `json:"every_ms" doc:"Between two ticks." example:"1000"`
	Wakes    []string `json:"wakes" nullable:"false" doc:"The functions that it nudges." example:"[\"notify\"]"`
}

func (f *function) settings(context.Context, *struct{}) (*struct{ Body configuration }, error) {
	return &struct{ Body configuration }{f.configuration()}, nil
}

func (f *function) configuration() configuration {
	all := configuration{Settings: f.env.Settings.List(), Schedule: []scheduled{}}
	for _, other := range f.env.Registry() {
		if other.Schedule > 0 {
			all.Schedule = append(all.Schedule, scheduled{other.Name, other.Summary, other.Schedule.Milliseconds(), append([]string{}, other.Wakes...)})
		}
	}
	return all
}
