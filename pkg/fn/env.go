package fn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/fn/transport"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/live"
	"github.com/miniserversystem/miniserver/pkg/rabbitmq"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// Env gives one function what the registry lists for it, and nothing else. New asks for
// stores and wakes; asking for one that the registry does not list makes the start fail.
type Env struct {
	Function Function
	Settings settings.Settings
	Mux      *http.ServeMux
	// Authorize returns the caller if they may use route; it may set headers of the
	// answer. Functions believe the gateway's statement; the gateway has its own way.
	Authorize func(w http.ResponseWriter, r *http.Request, route Route) (auth.Identity, error)

	// ContinuesTrace reports whether the trace that a request's headers name goes on here;
	// others are linked to a new one. Nil: all go on. The public function sets it.
	ContinuesTrace func(*http.Request) bool

	rt       *Runtime
	api      *api
	verifier *auth.Verifier
	refused  []error // what New asked for and the registry does not list
}

// Logger is the process's log with the function's name.
func (e *Env) Logger() *slog.Logger { return e.rt.Log.With("function", e.Function.Name) }

// Postgres returns the pool of a domain's database, in the role of that domain. It
// connects on first use.
func (e *Env) Postgres(domain string) (*pgxpool.Pool, error) {
	e.lists(slices.Contains(e.Function.Domains, domain), "Domains", domain)
	return e.rt.Postgres(domain)
}

// NATS returns the process's JetStream client. It connects on first use.
func (e *Env) NATS() *jetstream.Client {
	e.listsStore(NATS)
	return e.rt.NATS()
}

// Live returns the process's hub of live messages, nil where there is no NATS. It
// connects on first use.
func (e *Env) Live() *live.Hub {
	e.listsStore(NATS)
	return e.rt.Live()
}

// RabbitMQ returns the process's RabbitMQ client for publishing, and the one for
// consuming. Both connect on first use.
func (e *Env) RabbitMQ() (publish, consume *rabbitmq.Client) {
	e.listsStore(RabbitMQ)
	return e.rt.RabbitMQ()
}

// Redis returns the process's client of the Redis that holds the queues. It connects on
// first use.
func (e *Env) Redis() (redis.UniversalClient, error) {
	e.listsStore(Redis)
	return e.rt.Redis()
}

// SessionRedis returns the process's client of the Redis that holds the sessions. It
// connects on first use.
func (e *Env) SessionRedis() (redis.UniversalClient, error) {
	e.listsStore(Redis)
	return e.rt.SessionRedis()
}

// Waker returns a func that nudges another function after a commit, so that it runs now
// and not at its next tick. The func returns at once. A wake that fails costs latency,
// never data.
func (e *Env) Waker(function string) func() {
	e.lists(slices.Contains(e.Function.Wakes, function), "Wakes", function)
	return func() { e.rt.waker().Wake(function) }
}

// Tick registers the function's work: see tick.Handler.
func (e *Env) Tick(sources ...tick.Source) {
	handler := tick.Handler(tick.Config{
		Budget: e.Settings.TickBudget, Linger: e.Settings.TickLinger, Poll: e.Settings.TickPoll,
		Log: e.Logger(), Life: e.rt.Life, Running: &e.rt.Ticks, Function: e.Function.Name, Metrics: e.rt.ticks,
	}, sources...)
	e.Mux.Handle("POST "+tick.Path, handler)
	e.Mux.Handle("POST /{$}", handler)
}

// Meter returns where instruments are made. They count nothing, at no cost, where nobody
// reads them.
func (e *Env) Meter(name string) (metric.Meter, error) { return e.rt.Meter(name) }

// Worker names this process in locked_by.
func (e *Env) Worker() string { return e.rt.Worker }

// Policy is how rows are leased, from the settings.
func (e *Env) Policy() lease.Policy { return e.rt.Policy() }

// Life ends when the process begins to shut down.
func (e *Env) Life() context.Context { return e.rt.Life }

// Registry lists all functions. The gateway routes by it.
func (e *Env) Registry() []Function { return e.rt.Registry }

// Serves reports whether a route exists in this process or those beside it.
func (e *Env) Serves(route Route) bool { return e.rt.Serves(route) }

// Invoke reaches any function of the registry: the request's host is its name. Only the
// public function may.
func (e *Env) Invoke() http.RoundTripper {
	if !e.Function.Public {
		e.refused = append(e.refused, errors.New("only the public function calls others"))
	}
	transport, err := e.calls(e.rt.Invoke)
	if err != nil {
		e.refused = append(e.refused, err)
	}
	return transport
}

// Here returns a function of this process, nil where requests go over the network. Only
// the public function calls others.
func (e *Env) Here(function string) http.Handler {
	local, _ := e.rt.Invoke.(transport.Local)
	handler := local[function]
	if handler == nil || !e.rt.Traced() {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tracer := trace.SpanFromContext(r.Context()).TracerProvider().Tracer(scope)
		ctx, span := startCall(r.Context(), tracer, function)
		defer span.End()
		handler.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Together reports whether all functions are in this process.
func (e *Env) Together() bool { return e.rt.Together() }

func (e *Env) listsStore(store Store) {
	f := e.Function
	e.lists(f.needs(store) || slices.Contains(f.Optional, store), "Stores", string(store))
}

func (e *Env) lists(ok bool, field, name string) {
	if !ok {
		e.refused = append(e.refused, fmt.Errorf("it asks for %s, which is not among its %s in the registry", name, field))
	}
}
