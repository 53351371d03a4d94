// Package gateway is the front door: it signs people in, identifies the caller,
// decides which function answers, and forwards the request with a signed statement of
// the caller. It drops everything else that callers claim about themselves.
//
// A request is admitted (caller.go, limits.go, users.go) and then forwarded
// (forward.go); login.go, logout.go and link.go are the sign-in of browsers.
package gateway

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/cache"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/limit"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/problem"
	"github.com/miniserversystem/miniserver/pkg/session"
)

type gateway struct {
	env      *fn.Env
	invoke   http.RoundTripper // reaches the other functions
	bearer   *auth.Bearer
	signIn   *auth.SignIn
	sessions *session.Store
	cookies  cookies
	origin   *http.CrossOriginProtection
	limiter  *limit.Limiter
	trusted  []netip.Prefix
	signer   *auth.Signer
	users    *cache.Cache[string, string] // user ids by identity
	places   map[string]desk              // by function
	own      desk                         // of this function: for what it answers itself
	streams  chan struct{}                // one element for each open stream
	proxy    *httputil.ReverseProxy
	metrics  metrics
}

// New registers the public routes of all functions.
func New(e *fn.Env) error {
	g, err := build(e)
	if err != nil {
		return err
	}
	e.ContinuesTrace = g.fromService
	e.Authorize = func(w http.ResponseWriter, r *http.Request, route fn.Route) (auth.Identity, error) {
		return g.admitAt(g.own, w, r, route)
	}
	for _, f := range e.Registry() {
		for _, route := range f.Routes {
			if e.Serves(route) && f.Name != e.Function.Name {
				e.Mux.HandleFunc(route.Pattern(), g.route(f, route))
			}
		}
	}
	e.Mux.HandleFunc(fn.EventsRoute.Pattern(), g.event)
	fn.Handle(e, Overview, g.overview, fn.Nullable[matchmaking.Ticket]("session"))
	fn.Handle(e, LinkIdentity, g.linkIdentity)
	g.registerSignIn()
	g.registerPages()
	return nil
}

func build(e *fn.Env) (*gateway, error) {
	s := e.Settings
	g := &gateway{env: e, places: map[string]desk{}, invoke: e.Invoke(), cookies: newCookies(s.PublicURL), origin: http.NewCrossOriginProtection(), users: cache.New[string, string](maxUsers)}
	for _, f := range e.Registry() {
		g.places[f.Name] = make(desk, s.RequestsPerFunction)
	}
	g.own = g.places[e.Function.Name]
	if err := g.origin.AddTrustedOrigin(s.PublicURL); err != nil {
		return nil, err
	}
	var err error
	if g.trusted, err = limit.ParsePrefixes(s.TrustedProxies); err != nil {
		return nil, err
	}
	if g.metrics, err = newMetrics(e); err != nil {
		return nil, err
	}
	if s.IdentitySigningKey != "" {
		if g.signer, err = auth.NewSigner(s.IdentitySigningKey); err != nil {
			return nil, err
		}
	}
	if url, _ := s.SessionRedis(); url != "" {
		client, err := e.SessionRedis()
		if err != nil {
			return nil, err
		}
		g.sessions = session.NewStore(client, session.Limits{Idle: s.SessionIdle, Absolute: s.SessionLifetime})
		g.limiter = limit.New(client, e.Logger())
		g.limiter.SetPatience(s.LimitPatience)
	}
	g.bearer = auth.NewBearer(auth.NewIssuer(s.OIDCIssuer), s.OIDCAudience, s.OIDCClients)
	g.signIn = auth.NewSignIn(g.bearer, s.OIDCClientID, s.OIDCClientSecret, s.PublicURL+callbackPath, s.OIDCScopes)
	g.proxy = g.newProxy()
	g.streams = make(chan struct{}, g.streamPlaces())
	return g, nil
}

// route forwards requests of one route to the function that has it, while there are places.
func (g *gateway) route(f fn.Function, route fn.Route) http.HandlerFunc {
	refuse := g.refuse
	if route.Page {
		refuse = g.refuseVisitor
	}
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := g.admitAt(g.places[f.Name], w, r, route)
		if err != nil {
			refuse(w, r, err)
			return
		}
		// A body that comes slowly must not hold up a function, nor look like its fault.
		if _, err := fn.BufferBody(w, r); err != nil {
			problem.Write(w, err)
			return
		}
		if route.Stream && r.Method != http.MethodHead { // HEAD opens nothing
			g.forwardStream(w, r, f, caller)
			return
		}
		if route.Page {
			r = r.WithContext(context.WithValue(r.Context(), pageKey{}, true))
		}
		g.forwardAt(w, r, f, caller, refuse)
	}
}

// forwardAt is forward of a request that was admitted, while the function has a place.
func (g *gateway) forwardAt(w http.ResponseWriter, r *http.Request, f fn.Function, caller auth.Identity, refuse func(http.ResponseWriter, *http.Request, error)) {
	places := g.places[f.Name]
	if err := places.enterAgain(); err != nil {
		refuse(w, r, err)
		return
	}
	defer places.leave()
	g.forward(w, r, f, caller)
}

// event forwards CloudEvents to the function that takes their type.
func (g *gateway) event(w http.ResponseWriter, r *http.Request) {
	caller, err := g.admitAt(g.own, w, r, fn.EventsRoute)
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	event, err := fn.ReadEvent(w, r)
	if err != nil {
		problem.Write(w, err)
		return
	}
	var taken []string
	for _, f := range g.env.Registry() {
		if slices.Contains(f.Events, event.Type()) {
			g.forwardAt(w, r, f, caller, g.refuse)
			return
		}
		taken = append(taken, f.Events...)
	}
	problem.Write(w, fn.UnknownEvent(event.Type(), taken))
}

// functionOf returns the function that has a route.
func (g *gateway) functionOf(route fn.Route) fn.Function {
	for _, f := range g.env.Registry() {
		if slices.ContainsFunc(f.Routes, func(r fn.Route) bool { return r.ID == route.ID }) {
			return f
		}
	}
	return fn.Function{}
}
