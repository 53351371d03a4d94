package fn

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/fn/transport"
	"github.com/miniserversystem/miniserver/pkg/process"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// Runtime runs functions of a registry in a process.
type Runtime struct {
	*process.Process
	Registry []Function
	// Here are the functions that run in this process. Host adds to them.
	Here transport.Local
	// Invoke reaches any function of the registry. Set it before the first Host: to Here,
	// where all functions are, or to transport.Remote.
	Invoke http.RoundTripper

	hosted []Function
	waker  func() *tick.Waker
	ticks  *tick.Metrics // nil where nobody reads them

	mutex    sync.Mutex
	answered map[part]bool // parts of stores that answered once
}

// NewRuntime returns a runtime without functions. Close it.
func NewRuntime(s settings.Settings, log *slog.Logger, registry []Function) *Runtime {
	rt := &Runtime{Process: process.New(s, log), Registry: registry, Here: transport.Local{}, answered: map[part]bool{}}
	rt.waker = sync.OnceValue(func() *tick.Waker {
		waker := &tick.Waker{Log: rt.Log, Life: rt.Life, Metrics: rt.ticks}
		if s.Wakes {
			waker.Invoke = rt.Invoke
		}
		return waker
	})
	return rt
}

// Host builds functions, each with what the registry lists for it, and serves them Here.
// The error names the setting that is missing, or what a function asks for that the
// registry does not list.
func (rt *Runtime) Host(functions ...Function) error {
	if err := rt.measureTicks(); err != nil {
		return err
	}
	rt.hosted = append(rt.hosted, functions...)
	for _, f := range functions {
		if err := rt.Missing(f); err != nil {
			return err
		}
		env, err := rt.build(f)
		if err != nil {
			return err
		}
		if rt.Here[f.Name], err = env.wrap(); err != nil {
			return err
		}
	}
	return nil
}

func (rt *Runtime) measureTicks() error {
	if rt.ticks != nil || !rt.Metered() {
		return nil
	}
	meter, err := rt.Meter("tick")
	if err == nil {
		rt.ticks, err = tick.NewMetrics(meter)
	}
	return err
}

// Together reports whether all functions of the registry are in this process.
func (rt *Runtime) Together() bool { return len(rt.hosted) == len(rt.Registry) }

// Serves reports whether a route exists here: debug routes do where they are
// switched on.
func (rt *Runtime) Serves(route Route) bool { return !route.Debug || rt.Settings.DebugEndpoints }

// RunSchedule ticks every function that has a schedule, until ctx ends.
func (rt *Runtime) RunSchedule(ctx context.Context) {
	var schedule []tick.Every
	for _, f := range rt.Registry {
		if f.Schedule > 0 {
			schedule = append(schedule, tick.Every{Function: f.Name, Interval: f.Schedule})
		}
	}
	tick.Run(ctx, schedule, rt.Invoke, rt.Log)
}

// Missing returns an error that names the settings that f needs and does not have,
// nil when it can run.
func (rt *Runtime) Missing(f Function) error {
	s := rt.Settings
	sessions, _ := s.SessionRedis()
	var missing []string
	need := func(condition bool, text string) {
		if condition {
			missing = append(missing, text)
		}
	}
	need(slices.ContainsFunc(f.Domains, func(domain string) bool { return s.Database(domain) == "" }), "DATABASE_URL (postgres://…)")
	need(f.needs(NATS) && s.NATSURL == "", "NATS_URL (nats://…)")
	need(f.needs(Redis) && !f.Public && s.RedisURL == "", "REDIS_URL (redis://…)")
	need(f.needs(Redis) && f.Public && sessions == "", "REDIS_URL or SESSION_REDIS_URL (redis://…)")
	need(f.needs(RabbitMQ) && s.TransferBroker == settings.RabbitMQ && s.RabbitMQURL == "", "RABBITMQ_URL (amqp://…, for TRANSFER_BROKER=rabbitmq)")
	need(f.Public && s.OIDCIssuer == "", "OIDC_ISSUER (the issuer of access tokens)")
	need(f.Public && s.IdentitySigningKey == "", "IDENTITY_SIGNING_KEY (make identity-key prints one)")
	need(!f.Public && len(f.Routes)+len(f.Events) > 0 && s.IdentityVerifyKeys == "", "IDENTITY_VERIFY_KEYS (make identity-key prints them)")
	need(f.Public && rt.Invoke == nil, "FUNCTION_URL (where the other functions are, with {function} in it)")
	if len(missing) == 0 {
		return nil
	}
	return errors.New("function " + f.Name + " needs " + strings.Join(missing, ", "))
}
