package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	accounts "github.com/miniserversystem/miniserver/functions/account"
	"github.com/miniserversystem/miniserver/functions/entitlements"
	"github.com/miniserversystem/miniserver/functions/ticket"
	"github.com/miniserversystem/miniserver/pkg/account"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// Overview returns all that is known of the caller, in one request.
var Overview = fn.Route{
	ID: "get-my-overview", Method: http.MethodGet, Path: "/v1/me/overview",
	Summary: "Read the caller's account, entitlements and matchmaking at once",
	Description: "The parts are read at the same time. One that cannot be read in time is null, with its reason in errors; " +
		"the others still arrive, with 200. Entitlements are the first 100.",
}

type overview struct {
	Account            *account.Account          `json:"account"`
	Entitlements       []entitlement.Entitlement `json:"entitlements" doc:"By stock_keeping_unit."`
	EntitlementsCursor string                    `json:"entitlements_next_cursor,omitempty" doc:"Where GET /v1/users/{user_id}/entitlements goes on, when there are more."`
	Matchmaking        *waiting                  `json:"matchmaking"`
	Errors             map[string]why            `json:"errors" doc:"Why a part is null, by its name."`
}

// TransformSchema makes parts nullable, which tags cannot express for objects.
func (overview) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	for _, part := range []string{"account", "matchmaking"} {
		s.Properties[part] = &huma.Schema{AnyOf: []*huma.Schema{s.Properties[part], {Type: "null"}}}
	}
	return s
}

type waiting struct {
	Tickets []matchmaking.Ticket `json:"tickets" nullable:"false" doc:"The caller's latest ticket of each mode."`
}

type why struct {
	Code   string `json:"code" example:"unavailable"`
	Detail string `json:"detail"`
}

func (g *gateway) overview(ctx context.Context, _ *struct{}) (*struct{ Body overview }, error) {
	if err := g.own.enterAgain(); err != nil {
		return nil, err
	}
	defer g.own.leave()
	caller := auth.From(ctx)
	ctx, cancel := context.WithTimeout(ctx, g.env.Settings.OverviewTimeout)
	defer cancel()
	o := overview{Errors: map[string]why{}}
	var mutex sync.Mutex
	var group sync.WaitGroup
	part := func(name string, read func() error) {
		group.Go(func() {
			if err := read(); err != nil {
				mutex.Lock()
				defer mutex.Unlock()
				o.Errors[name] = g.why(ctx, err)
			}
		})
	}
	// A session has the user id; a token may need a lookup.
	userID := sync.OnceValues(func() (string, error) {
		if caller.UserID != "" {
			return caller.UserID, nil
		}
		return g.userID(ctx, caller)
	})
	part("account", func() error {
		if _, err := userID(); err != nil {
			return err
		}
		var known account.Account
		err := g.ask(ctx, g.functionOf(accounts.Get), http.MethodGet, accounts.Get.Path, caller, nil, &known)
		if err == nil {
			o.Account = &known
		}
		return err
	})
	owner := func() (auth.Identity, error) {
		id, err := userID()
		known := caller
		known.UserID = id
		return known, err
	}
	part("matchmaking", func() error {
		owner, err := owner()
		if err != nil {
			return err
		}
		var list waiting
		if err = g.ask(ctx, g.functionOf(ticket.List), http.MethodGet, ticket.List.Path, owner, nil, &list); err == nil {
			o.Matchmaking = &list
		}
		return err
	})
	part("entitlements", func() error {
		owner, err := owner()
		if err != nil {
			return err
		}
		var page struct {
			Entitlements []entitlement.Entitlement `json:"entitlements"`
			NextCursor   string                    `json:"next_cursor"`
		}
		path := "/v1/users/" + url.PathEscape(owner.UserID) + "/entitlements"
		if err = g.ask(ctx, g.functionOf(entitlements.List), http.MethodGet, path, owner, nil, &page); err == nil {
			o.Entitlements, o.EntitlementsCursor = page.Entitlements, page.NextCursor
		}
		return err
	})
	group.Wait()
	return &struct{ Body overview }{o}, nil
}

// why is the reason that the answer gives for a part that failed.
func (g *gateway) why(ctx context.Context, err error) why {
	if errors.Is(err, context.DeadlineExceeded) {
		return why{"timeout", "It took too long; ask for it again."}
	}
	p := problem.From(g.logged(ctx, err))
	return why{p.Code, p.Detail}
}
