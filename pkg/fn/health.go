package fn

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/pkg/problem"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// Paths of the probes.
const (
	LivenessPath  = "/health/liveness"
	ReadinessPath = "/health/readiness"
	// Where OpenFaaS asks, whose probes have these paths by convention.
	OpenFaaSLivenessPath  = "/_/health"
	OpenFaaSReadinessPath = "/_/ready"
)

// isProbe reports whether a path is one of them.
func isProbe(path string) bool {
	switch path {
	case LivenessPath, ReadinessPath, OpenFaaSLivenessPath, OpenFaaSReadinessPath:
		return true
	}
	return false
}

// readyTimeout bounds how long a readiness probe waits for a store.
const readyTimeout = 2 * time.Second

func (e *Env) registerHealth() {
	ok := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{\"status\":\"ok\"}\n"))
	}
	live := func(w http.ResponseWriter, _ *http.Request) { ok(w) }
	ready := func(w http.ResponseWriter, r *http.Request) {
		needed := []Function{e.Function}
		if _, together := e.Invoke.(Local); together && e.Function.Public {
			// The gateway with all functions in its process stands for all of them.
			needed = e.Functions
		}
		for _, f := range needed {
			if err := e.Ready(r.Context(), f); err != nil {
				problem.Write(w, err)
				return
			}
		}
		ok(w)
	}
	for _, path := range []string{LivenessPath, OpenFaaSLivenessPath} {
		e.Mux.HandleFunc("GET "+path, live)
	}
	for _, path := range []string{ReadinessPath, OpenFaaSReadinessPath} {
		e.Mux.HandleFunc("GET "+path, ready)
	}
}

// Ready returns nil once each store that f needs has answered since the process
// started. A store that goes away later shows in answers, not here: taking every
// instance out of rotation would help nobody.
func (rt *Runtime) Ready(ctx context.Context, f Function) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, store := range f.Stores {
		parts := []string{""}
		if store == Postgres {
			parts = f.Domains // each may have a database of its own
		}
		if store == Redis && f.Public {
			parts = []string{sessions} // they may have a Redis of their own
		}
		for _, part := range parts {
			if err := rt.once(ctx, store, part); err != nil {
				return fault.Unreachable(string(store), err)
			}
		}
	}
	return nil
}

// once returns nil when the store has answered before, or does now.
func (rt *Runtime) once(ctx context.Context, store Store, part string) error {
	key := string(store) + "/" + part
	rt.mutex.Lock()
	ready := rt.ready[key]
	rt.mutex.Unlock()
	if ready {
		return nil
	}
	if err := rt.ping(ctx, store, part); err != nil {
		return err
	}
	rt.mutex.Lock()
	rt.ready[key] = true
	rt.mutex.Unlock()
	return nil
}

// sessions is the part of Redis that the gateway needs.
const sessions = "sessions"

// ping asks a store, or the part of it that is a domain's or the sessions' own.
func (rt *Runtime) ping(ctx context.Context, store Store, part string) error {
	switch store {
	case Postgres:
		pool, err := rt.Postgres(part)
		if err != nil {
			return err
		}
		return postgres.Wrap("ping", pool.Ping(ctx))
	case Redis:
		connect := rt.Redis
		if part == sessions {
			connect = rt.SessionRedis
		}
		client, err := connect()
		if err != nil {
			return err
		}
		return client.Ping(ctx).Err()
	case NATS:
		return rt.NATS().Ready(ctx)
	case RabbitMQ:
		if rt.Settings.TransferBroker != settings.RabbitMQ {
			return nil
		}
		_, consume := rt.RabbitMQ() // relay itself sees that the broker is full; others need not stop
		return consume.Ready(ctx)
	}
	return errors.New("no such store: " + string(store))
}
