package gateway

import (
	"net/http"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/limit"
)

// limit counts a request and returns an error when there were too many. Callers
// are counted as themselves, on all instances together; who has no valid token or
// session (err) is counted by address.
func (g *gateway) limit(w http.ResponseWriter, r *http.Request, caller auth.Identity, err error) error {
	s := g.env.Settings
	policy := limit.Policy{Name: "player", Rate: s.LimitPlayerRate, Burst: s.LimitPlayerBurst}
	key := callerKey(caller)
	switch {
	case fault.Of(err) == fault.Unavailable:
		// We cannot tell who it is, which is not their fault.
		key = limit.Address(r, g.trusted)
	case err != nil:
		policy = limit.Policy{Name: "anonymous", Rate: s.LimitAnonymousRate, Burst: s.LimitAnonymousBurst}
		key = limit.Address(r, g.trusted)
	case caller.Has(auth.RoleEntitlementWriter, auth.RoleOperator):
		policy = limit.Policy{Name: "service", Rate: s.LimitServiceRate, Burst: s.LimitServiceBurst}
	}
	result := g.limiter.Allow(r.Context(), policy, key)
	result.WriteHeaders(w.Header())
	return result.Err()
}

// quota counts a request of a route that has a quota of its own.
func (g *gateway) quota(w http.ResponseWriter, r *http.Request, caller auth.Identity, route fn.Route) error {
	if route.Quota == (fn.Quota{}) {
		return nil
	}
	result := g.limiter.Allow(r.Context(), limit.Policy{
		Name: route.ID, Rate: route.Quota.PerMinute, Period: quotaPeriod, Burst: route.Quota.Burst,
	}, callerKey(caller))
	if !result.Allowed {
		result.WriteHeaders(w.Header())
	}
	return result.Err()
}

// callerKey names a caller; a subject is an issuer's own.
func callerKey(caller auth.Identity) string { return caller.Issuer + " " + caller.Subject }

// limited wraps a page that anybody may open.
func (g *gateway) limited(page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := g.limit(w, r, auth.Identity{}, auth.ErrNoToken); err != nil {
			g.refuse(w, r, err)
			return
		}
		page(w, r)
	}
}
