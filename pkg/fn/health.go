package fn

import (
	"context"
	"errors"
	"net/http"
	"strings"
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

// readyTimeout bounds how long a readiness probe waits for all stores.
const readyTimeout = 2 * time.Second

func (e *Env) registerHealth() {
	ok := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{\"status\":\"ok\"}\n"))
	}
	live := func(w http.ResponseWriter, _ *http.Request) { ok(w) }
	ready := func(w http.ResponseWriter, r *http.Request) {
		needed := []Function{e.Function}
		if e.Function.Public {
			needed = e.rt.hosted // the gateway stands for all that are in its process
		}
		if err := e.rt.ready(r.Context(), needed); err != nil {
			e.Logger().WarnContext(r.Context(), "not ready", "error", err.Error()) // probes show no body
			problem.Write(w, err)
			return
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

// part of a store, which may be on a server of its own: a domain's database, or the
// Redis of the sessions.
type part struct {
	store Store
	name  string
}

const sessions = "sessions"

// String names the part and the settings that say where it is.
func (p part) String() string {
	switch {
	case p.store == Postgres:
		return "The database of " + p.name + " (" + strings.ToUpper(p.name) + "_DATABASE_URL or DATABASE_URL)"
	case p.name == sessions:
		return "Redis (SESSION_REDIS_URL or REDIS_URL)"
	}
	return map[Store]string{Redis: "Redis (REDIS_URL)", NATS: "NATS (NATS_URL)", RabbitMQ: "RabbitMQ (RABBITMQ_URL)"}[p.store]
}

// parts are those that a function needs.
func (f Function) parts() (parts []part) {
	for _, store := range f.Stores {
		switch {
		case store == Postgres:
			for _, domain := range f.Domains {
				parts = append(parts, part{store, domain})
			}
		case store == Redis && f.Public:
			parts = append(parts, part{store, sessions})
		default:
			parts = append(parts, part{store, ""})
		}
	}
	return parts
}

// Ready returns nil once each store that the functions Here need has answered since the
// process started; the error is fault.Unavailable, and names the store and its settings. A store that goes
// away later shows in answers, not here: taking every instance out of rotation would
// help nobody.
func (rt *Runtime) Ready(ctx context.Context) error { return rt.ready(ctx, rt.hosted) }

func (rt *Runtime) ready(ctx context.Context, functions []Function) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, f := range functions {
		for _, p := range f.parts() {
			if err := rt.answeredOnce(ctx, p); err != nil {
				return fault.Unreachable(p.String(), err)
			}
		}
	}
	return nil
}

func (rt *Runtime) answeredOnce(ctx context.Context, p part) error {
	rt.mutex.Lock()
	answered := rt.answered[p]
	rt.mutex.Unlock()
	if answered {
		return nil
	}
	if err := rt.ping(ctx, p); err != nil {
		return err
	}
	rt.mutex.Lock()
	rt.answered[p] = true
	rt.mutex.Unlock()
	return nil
}

func (rt *Runtime) ping(ctx context.Context, p part) error {
	switch p.store {
	case Postgres:
		pool, err := rt.Postgres(p.name)
		if err != nil {
			return err
		}
		return postgres.Wrap("ping", pool.Ping(ctx))
	case Redis:
		connect := rt.Redis
		if p.name == sessions {
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
	return errors.New("no such store: " + string(p.store))
}
