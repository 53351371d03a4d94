package gateway

import (
	"net/http"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/limit"
)

// limit counts a request and returns an error when there were too many. Callers
// are counted as themselves, on all instances together; requests without a valid
// token or session (err) count by address.
func (g *gateway) limit(w http.ResponseWriter, r *http.Request, caller auth.Identity, err error) error {
	s := g.env.Settings
	policy := limit.Policy{Name: "player", Rate: s.LimitPlayerRate, Burst: s.LimitPlayerBurst}
	key := g.countedAs(caller)
	switch {
	case fault.Of(err) == fault.Unavailable:
		// The caller is unknown because the issuer or Redis is away, not by their fault.
		key = limit.Address(r, g.trusted)
	case err != nil:
		policy = limit.Policy{Name: "anonymous", Rate: s.LimitAnonymousRate, Burst: s.LimitAnonymousBurst}
		key = limit.Address(r, g.trusted)
	case isService(caller):
		policy = limit.Policy{Name: "service", Rate: s.LimitServiceRate, Burst: s.LimitServiceBurst}
	}
	result := g.limiter.Allow(r.Context(), policy, key)
	g.metrics.limited(r.Context(), policy.Name, result)
	result.WriteHeaders(w.Header())
	return result.Err()
}

// isService reports whether a caller has a role above player.
func isService(caller auth.Identity) bool {
	return caller.Has(auth.RoleEntitlementWriter, auth.RoleOperator)
}

// quota counts a request of a route that has a quota of its own.
func (g *gateway) quota(w http.ResponseWriter, r *http.Request, caller auth.Identity, route fn.Route) error {
	if route.Quota == (fn.Quota{}) {
		return nil
	}
	return g.allow(w, r, route.ID, route.Quota, g.countedAs(caller))
}

// signIns counts the start of a sign-in by a caller not yet known: each is kept in Redis
// until it is finished, or for session.LoginLifetime.
func (g *gateway) signIns(w http.ResponseWriter, r *http.Request) error {
	most := g.env.Settings.LimitSignIns
	return g.allow(w, r, "sign-in", fn.Quota{PerMinute: most, Burst: most}, limit.Address(r, g.trusted))
}

// allow counts a request against key's quota; the answer has the quota's headers when it
// is used up.
func (g *gateway) allow(w http.ResponseWriter, r *http.Request, name string, quota fn.Quota, key string) error {
	result := g.limiter.Allow(r.Context(), limit.Policy{
		Name: name, Rate: quota.PerMinute, Period: quotaPeriod, Burst: quota.Burst,
	}, key)
	g.metrics.limited(r.Context(), name, result)
	if !result.Allowed {
		result.WriteHeaders(w.Header())
	}
	return result.Err()
}

// countedAs returns the key under which a caller's requests count: the user, so that
// linked identities share one limit, or the identity while this process does not know the
// user. It looks nothing up: an identity's first request about the caller's own resources
// makes the user known.
func (g *gateway) countedAs(caller auth.Identity) string {
	if caller.UserID != "" {
		return caller.UserID
	}
	if userID, known := g.users.Get(callerKey(caller), time.Now()); known {
		return userID
	}
	return callerKey(caller)
}

// callerKey names an identity; a subject is an issuer's own.
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
