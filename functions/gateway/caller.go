package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/problem"
	"github.com/miniserversystem/miniserver/pkg/session"
)

// admit returns the caller of a request that route may take now: it has a valid token
// or session, is within the caller's limits, and the caller has a role of the route.
// For a route about the caller's own resources it also finds their user id, by which
// the route's quota counts.
func (g *gateway) admit(w http.ResponseWriter, r *http.Request, route fn.Route) (auth.Identity, error) {
	caller, err := g.identify(r)
	if limited := g.limit(w, r, caller, err); limited != nil {
		return auth.Identity{}, limited
	}
	if err == nil {
		err = route.Admit(caller)
	}
	if err == nil && caller.UserID == "" && route.NeedsUser(caller) {
		caller.UserID, err = g.userID(r.Context(), caller)
	}
	if err == nil {
		err = g.quota(w, r, caller, route)
	}
	return caller, err
}

// identify returns the caller that the access token names, or the session when there
// is no token.
func (g *gateway) identify(r *http.Request) (auth.Identity, error) {
	if len(r.Header.Values("Authorization")) > 0 {
		access, err := g.bearer.Identify(r)
		return access.Identity, err
	}
	cookie := g.cookies.session(r)
	if cookie == "" {
		return auth.Identity{}, auth.ErrNoToken
	}
	caller, err := g.fromSession(r.Context(), cookie)
	if err == nil {
		err = g.sameSite(r)
	}
	return caller, err
}

// fromService reports whether a service sent the request. Its trace goes on; a trace that
// anybody else names could be made up, so theirs is only linked.
func (g *gateway) fromService(r *http.Request) bool {
	access, err := g.bearer.Identify(r) // a token is verified once and then remembered
	return err == nil && isService(access.Identity)
}

// Errors about sessions.
var errCSRF = fault.New(fault.Forbidden, "csrf_refused",
	"A write that is authenticated by a cookie must come from a page of this site and carry the header X-CSRF: 1.")

// sameSite refuses writes that another site could have made the browser send:
// browsers add cookies to those, but no header of ours.
func (g *gateway) sameSite(r *http.Request) error {
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, r.Method) {
		return nil
	}
	if r.Header.Get("X-CSRF") != "1" || g.origin.Check(r) != nil {
		return errCSRF
	}
	return nil
}

// fromSession returns the caller that a session names. It renews tokens that are due
// first, so that a session ends soon after the issuer has ended it.
func (g *gateway) fromSession(ctx context.Context, cookie string) (auth.Identity, error) {
	s, err := g.sessions.Load(ctx, cookie)
	if err == nil {
		s, err = g.sessions.Renewed(ctx, cookie, s, g.renew)
	}
	if err != nil {
		return auth.Identity{}, err
	}
	return auth.Identity{
		Issuer: s.Issuer, Subject: s.Subject, UserID: s.UserID, Client: s.Client, Roles: s.Roles, AuthTime: s.AuthTime,
	}, nil
}

// renewBefore is how long before their expiry tokens are renewed.
const renewBefore = 10 * time.Second

// renew returns s with new tokens and roles.
func (g *gateway) renew(ctx context.Context, s session.Session) (session.Session, error) {
	grant, err := g.signIn.Renew(ctx, s.Subject, s.RefreshToken)
	if errors.Is(err, auth.ErrRevoked) {
		g.metrics.session(ctx, "revoked", 1)
		return s, session.ErrRevoked
	}
	if err != nil {
		g.metrics.session(ctx, "renewal_failed", 1)
		g.env.Logger().WarnContext(ctx, "session not renewed", "error", err.Error())
		if grant.RefreshToken == "" {
			return s, err
		}
		// The new access token cannot be checked now, and the old refresh token is used
		// up: keep the new one, and try again soon.
		s.RefreshToken, s.RenewAt = grant.RefreshToken, time.Time{}
		return s, nil
	}
	if grant.RefreshToken != "" {
		s.RefreshToken = grant.RefreshToken
	}
	if grant.IDToken != "" {
		s.IDToken = grant.IDToken
	}
	s.Roles, s.RenewAt = grant.Roles, grant.Expiry.Add(-renewBefore)
	g.metrics.session(ctx, "renewed", 1)
	return s, nil
}

// refuse answers with a problem, and logs what the caller is not shown.
func (g *gateway) refuse(w http.ResponseWriter, r *http.Request, err error) {
	problem.Write(w, g.logged(r.Context(), err))
}

// logged logs what the caller is not shown.
func (g *gateway) logged(ctx context.Context, err error) error {
	if kind := fault.Of(err); kind == fault.Internal || kind == fault.Unavailable {
		g.env.Logger().ErrorContext(ctx, "request failed", "error", err.Error())
	}
	return err
}
