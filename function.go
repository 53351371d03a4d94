// Package function is the root that the func CLI builds. The environment
// variable FUNCTION picks one function of the registry; unset, it is the gateway
// with every function behind it in one process, and their schedule.
package function

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/transport"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

// Function is one function, or all of them, as the func CLI's middleware and
// infra/miniserver run it.
type Function struct {
	handler  http.Handler
	runtime  *fn.Runtime
	schedule bool

	stopSchedule context.CancelFunc
	stopWatching context.CancelFunc // for signals
	scheduled    sync.WaitGroup
	measured     bool // the metrics listener is open
}

// New returns the function that the environment asks for. When it cannot run, it
// prints one line that says why and ends the process with status 1: the func CLI's
// middleware takes no error.
func New() *Function {
	s, err := settings.Load()
	if err == nil {
		var f *Function
		if f, err = Load(s); err == nil {
			return f
		}
	}
	fmt.Fprintln(os.Stderr, "miniserver:", err)
	os.Exit(1)
	return nil
}

// Load makes the function that s asks for. The error is one line that says why it cannot
// run.
func Load(s settings.Settings) (*Function, error) {
	log := telemetry.NewLogger(os.Stdout, s.LogLevel)
	if s.Function == "" {
		return buildAll(s, log)
	}
	chosen, err := functions.Named(s.Function)
	if err != nil {
		return nil, err
	}
	rt := fn.NewRuntime(s, log, functions.All)
	if s.FunctionURL != "" {
		if rt.Invoke, err = transport.Remote(s.FunctionURL); err != nil {
			return nil, err
		}
	}
	if err := rt.Host(chosen); err != nil {
		return nil, err
	}
	return &Function{handler: rt.Here[chosen.Name], runtime: rt}, nil
}

func buildAll(s settings.Settings, log *slog.Logger) (*Function, error) {
	if s.IdentitySigningKey == "" && s.IdentityVerifyKeys == "" {
		// No other process verifies its statements.
		var err error
		if s.IdentitySigningKey, s.IdentityVerifyKeys, err = auth.NewKeyPair(); err != nil {
			return nil, err
		}
	}
	rt := fn.NewRuntime(s, log, functions.All)
	handler, err := functions.Together(rt)
	if err != nil {
		return nil, err
	}
	return &Function{handler: handler, runtime: rt, schedule: s.Schedule == "auto"}, nil
}

// Handle answers one request.
func (f *Function) Handle(w http.ResponseWriter, r *http.Request) { f.handler.ServeHTTP(w, r) }

// Local reaches the functions of this process by name: the one that FUNCTION names, or
// all of them. Platforms that deliver events instead of HTTP connections use it.
func (f *Function) Local() transport.Local { return f.runtime.Here }

// Start begins the schedule, when all functions are in this process, and listens on
// METRICS_ADDRESS, when it is set. The func CLI's middleware gives it a configuration,
// its own copy of the environment; other callers give nil.
func (f *Function) Start(ctx context.Context, configuration map[string]string) error {
	if err := f.listenMetrics(); err != nil {
		return err
	}
	if configuration != nil && f.stopWatching == nil {
		f.watchSignals(ctx)
	}
	if !f.schedule || f.stopSchedule != nil {
		return nil
	}
	ctx, f.stopSchedule = context.WithCancel(context.WithoutCancel(ctx))
	f.scheduled.Go(func() { f.runtime.RunSchedule(ctx) })
	return nil
}

// watchSignals is for the func CLI's middleware, which calls no hook when it begins to
// shut down. It waits for running requests first: for ticks until they stop lingering,
// for live streams 30 s, after which it reports a fault.
func (f *Function) watchSignals(ctx context.Context) {
	ctx, f.stopWatching = signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGINT, syscall.SIGTERM)
	f.scheduled.Go(func() {
		<-ctx.Done()
		f.StopClaiming()
	})
}

func (f *Function) listenMetrics() error {
	address := f.runtime.Settings.MetricsAddress
	if address == "" || f.measured {
		return nil
	}
	metrics, err := f.runtime.Metrics()
	if err != nil {
		return err
	}
	_, err = metrics.Listen(address)
	f.measured = err == nil
	return err
}

// StopClaiming makes ticks in progress end after the batch that they hold. Servers
// call it when they begin to shut down, while requests still run.
func (f *Function) StopClaiming() { f.runtime.StopClaiming() }

// Flush sends the spans of requests that were answered. A platform that freezes the process
// between requests calls it after each; it takes 3 s at most.
func (f *Function) Flush(ctx context.Context) error { return f.runtime.Flush(ctx) }

// Stop ends the schedule, lets ticks in progress end, and disconnects.
func (f *Function) Stop(context.Context) error {
	if f.stopSchedule != nil {
		f.stopSchedule()
	}
	if f.stopWatching != nil {
		f.stopWatching()
	}
	f.runtime.Close()
	f.scheduled.Wait()
	return nil
}

// Ready reports whether the stores that this process needs have answered. The reason is
// logged, not returned: the func CLI's middleware would answer a probe with the error, as
// a fault of its own (500), and show it to every caller.
func (f *Function) Ready(ctx context.Context) (bool, error) {
	if err := f.NotReady(ctx); err != nil {
		f.runtime.Log.InfoContext(ctx, "not ready", "error", err.Error())
		return false, nil
	}
	return true, nil
}

// NotReady returns an error that names a store that has not answered yet, nil when all
// that this process needs have.
func (f *Function) NotReady(ctx context.Context) error { return f.runtime.Ready(ctx) }

// Alive reports whether the process can answer at all.
func (f *Function) Alive(context.Context) (bool, error) { return true, nil }
