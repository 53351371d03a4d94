// Package gateway is the front door: it finds out who calls, decides which
// function answers, and passes the request on with a signed statement of who
// calls. Everything else that a caller says about themselves is dropped.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/problem"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

type gateway struct {
	env    *fn.Env
	bearer *auth.Bearer
	signer *auth.Signer
	proxy  *httputil.ReverseProxy
}

// New registers the public routes of all functions.
func New(e *fn.Env) error {
	g := &gateway{env: e, bearer: auth.NewBearer(e.Settings.OIDCIssuer, e.Settings.OIDCAudience)}
	if e.Settings.IdentitySigningKey != "" {
		signer, err := auth.NewSigner(e.Settings.IdentitySigningKey)
		if err != nil {
			return err
		}
		g.signer = signer
	}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:        g.rewrite,
		Transport:      e.Invoke,
		ModifyResponse: refused,
		ErrorHandler:   g.unreachable,
	}
	for _, f := range e.Functions {
		for _, route := range f.Routes {
			if e.Serves(route) {
				e.Mux.HandleFunc(route.Pattern(), g.route(f, route))
			}
		}
	}
	e.Mux.HandleFunc(fn.EventsRoute.Pattern(), g.event)
	registerDocs(e.Mux)
	return nil
}

// route answers requests of one route by the function that has it.
func (g *gateway) route(f fn.Function, route fn.Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		identity, err := g.identify(r, route)
		if err != nil {
			problem.Write(w, g.logged(r.Context(), err))
			return
		}
		// A body that comes slowly must not hold up a function, nor look like its fault.
		if _, err := fn.BufferBody(w, r); err != nil {
			problem.Write(w, err)
			return
		}
		g.forward(w, r, f, identity)
	}
}

// event answers CloudEvents by the function that takes their type.
func (g *gateway) event(w http.ResponseWriter, r *http.Request) {
	identity, err := g.identify(r, fn.EventsRoute)
	if err != nil {
		problem.Write(w, g.logged(r.Context(), err))
		return
	}
	event, err := fn.ReadEvent(w, r)
	if err != nil {
		problem.Write(w, err)
		return
	}
	for _, f := range g.env.Functions {
		if slices.Contains(f.Events, event.Type()) {
			g.forward(w, r, f, identity)
			return
		}
	}
	problem.Write(w, fn.UnknownEvent(event.Type()))
}

// identify returns who calls when they may use route.
func (g *gateway) identify(r *http.Request, route fn.Route) (auth.Identity, error) {
	identity, err := g.bearer.Identify(r)
	if err == nil {
		err = route.Admit(identity)
	}
	return identity, err
}

// logged logs what the caller is not shown.
func (g *gateway) logged(ctx context.Context, err error) error {
	if kind := fault.Of(err); kind == fault.Internal || kind == fault.Unavailable {
		g.env.Logger().ErrorContext(ctx, "request failed", "error", err.Error())
	}
	return err
}

func (g *gateway) forward(w http.ResponseWriter, r *http.Request, f fn.Function, identity auth.Identity) {
	statement, err := g.signer.Sign(f.Name, identity)
	if err != nil {
		problem.Write(w, g.logged(r.Context(), err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), f.Timeout)
	defer cancel()
	// The function sets these itself, and the proxy adds what it gets.
	w.Header().Del("Cache-Control")
	w.Header().Del("X-Content-Type-Options")
	g.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, targetKey{}, target{f.Name, statement})))
}

type targetKey struct{}

type target struct{ function, statement string }

// passedOn are the headers that functions get; "ce-" headers are passed on too.
var passedOn = []string{"Accept", "Content-Type", "If-Match", "If-None-Match", "Last-Event-Id", idempotency.Header}

func (g *gateway) rewrite(pr *httputil.ProxyRequest) {
	to := pr.In.Context().Value(targetKey{}).(target)
	pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = "http", to.function, to.function
	header := http.Header{auth.StatementHeader: {to.statement}}
	for name, values := range pr.In.Header {
		if slices.Contains(passedOn, name) || strings.HasPrefix(name, "Ce-") {
			header[name] = values
		}
	}
	telemetry.Inject(pr.In.Context(), header)
	pr.Out.Header = header
}

// refused turns a function's 401 into an error: it does not believe us (keys were
// rotated in the wrong order), which the caller can do nothing about.
func refused(response *http.Response) error {
	if response.StatusCode == http.StatusUnauthorized {
		return errors.New("it does not believe the gateway's statement; IDENTITY_VERIFY_KEYS must hold the key of IDENTITY_SIGNING_KEY")
	}
	return nil
}

// statusClientGone is what nginx calls "client closed request".
const statusClientGone = 499

// unreachable answers when a function did not.
func (g *gateway) unreachable(w http.ResponseWriter, r *http.Request, err error) {
	to, _ := r.Context().Value(targetKey{}).(target)
	switch {
	case errors.Is(err, context.Canceled):
		// The caller is gone; the status is for the log, which must not count it as ours.
		w.WriteHeader(statusClientGone)
		return
	case errors.Is(err, context.DeadlineExceeded):
		problem.Write(w, problem.New(http.StatusGatewayTimeout, "timeout",
			"It took too long; the request may have been done: send it again with the same key."))
		return
	default:
		g.env.Logger().ErrorContext(r.Context(), "function unreachable", "target", to.function, "error", err.Error())
		err = &fault.Error{Kind: fault.Unavailable, Code: "unavailable", RetryAfter: time.Second,
			Detail: "This part of the system cannot be reached at the moment; send the same request again.",
			Cause:  fmt.Errorf("function %s: %w", to.function, err)}
	}
	problem.Write(w, err)
}
