package gateway

import (
	"context"
	"encoding/json"
	"net/http"

	accounts "github.com/miniserversystem/miniserver/functions/account"
	"github.com/miniserversystem/miniserver/pkg/account"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/session"
)

// LinkIdentity ties a second identity at the issuer to the caller's account.
var LinkIdentity = fn.Route{
	ID: "link-identity", Method: http.MethodPost, Path: "/v1/me/identities", Self: true,
	Summary: "Link a second identity to the caller's account",
	Description: "Both have to be proven within the last five minutes: the caller's by this request's token or session, the other's by access_token. " +
		"An identity that has an account already stays there: accounts are never merged. In a browser, POST /login/link begins the same.",
	Quota:   fn.Quota{PerMinute: 10, Burst: 10},
	Refuses: []int{http.StatusConflict},
}

// beginLinkRoute is LinkIdentity for browsers, which hold no tokens.
var beginLinkRoute = fn.Route{ID: "begin-link", Method: http.MethodPost, Path: linkPath, Self: true, Bodyless: true, Quota: LinkIdentity.Quota}

type linkRequest struct {
	Body struct {
		AccessToken string `json:"access_token" minLength:"1" maxLength:"8192" doc:"An access token of the identity to link, from a sign-in of the last five minutes." example:"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"`
	}
}

var errSecondToken = fault.New(fault.Invalid, "second_token_invalid",
	"access_token is not a valid access token here, or has expired; sign in with the identity to link and send its token.")

func (g *gateway) linkIdentity(ctx context.Context, in *linkRequest) (*struct{ Body account.Account }, error) {
	if err := g.own.enterAgain(); err != nil {
		return nil, err
	}
	defer g.own.leave()
	second, err := g.bearer.Check(ctx, in.Body.AccessToken)
	if fault.Of(err) == fault.Unauthenticated {
		err = errSecondToken
	}
	if err != nil {
		return nil, err
	}
	linked, err := g.link(ctx, auth.From(ctx), second.Identity)
	return &struct{ Body account.Account }{linked}, err
}

// link ties second to the account of first, when both were proven just now.
func (g *gateway) link(ctx context.Context, first, second auth.Identity) (linked account.Account, err error) {
	if err := first.Fresh(); err != nil {
		return linked, err
	}
	if err := second.Fresh(); err != nil {
		return linked, err
	}
	f := g.functionOf(accounts.Register)
	// About the second identity, too, the function accepts only our statement.
	statement, err := g.signer.Sign(auth.Call{Function: f.Name, Method: http.MethodPost, Path: accounts.SecondPath}, second)
	if err != nil {
		return linked, err
	}
	err = g.ask(ctx, f, http.MethodPost, accounts.LinkPath, first, accounts.Second{Statement: statement}, &linked)
	if err != nil {
		return linked, err
	}
	g.remember(second, linked.UserID)
	linked.Roles = first.Roles
	return linked, nil
}

// beginLink answers with the address where a browser proves the second identity.
func (g *gateway) beginLink(w http.ResponseWriter, r *http.Request) {
	caller, err := g.admitAt(g.own, w, r, beginLinkRoute)
	if err == nil {
		err = caller.Fresh()
	}
	var path, where string
	if err == nil {
		path, err = returnTo(r)
	}
	if err == nil {
		where, err = g.begin(w, r, session.Login{ReturnTo: path, LinkTo: caller.UserID}, true)
	}
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"location": where}) // the client may be gone
}

// finishLink links the identity that just signed in to the account that asked for it,
// if that account is still signed in here.
func (g *gateway) finishLink(r *http.Request, login session.Login, grant auth.Grant) error {
	first, err := g.fromSession(r.Context(), g.cookies.session(r))
	if err != nil {
		return err
	}
	if first.UserID != login.LinkTo {
		return session.ErrLogin
	}
	_, err = g.link(r.Context(), first, grant.Identity)
	return err
}
