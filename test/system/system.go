// Package system gives tests the whole system: all functions in one process or in
// several, on stores of the test's own, with users who sign in, and helpers for requests
// and expectations. Every answer that a test gets from it is checked against the OpenAPI
// document.
package system

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/infra/dev/redis"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
)

// System is the whole system in one process, on a database, a Redis and a NATS of the
// test's own.
type System struct {
	T        testing.TB
	URL      string       // the gateway's
	Client   *http.Client // that opens streams; nil is http.DefaultClient
	Pool     *pgxpool.Pool
	Redis    *redis.Server
	RedisDir string // where Redis keeps its data
	NATS     *nats.Server
	Runtime  *fn.Runtime
	Writer   string // access token of the purchase service
	Operator string // access token of an operator
	Log      *Log
	Seen     *Answers

	served []*agingListener // of BehindServe, Served and Apart
}

// Start starts a system without a schedule: tests tick it, or rely on wakes. environment
// overrides its settings.
func Start(t testing.TB, environment ...string) *System {
	t.Helper()
	s := StartOn(t, kit.Listen(t), append([]string{"OIDC_ISSUER=" + identity.Issuer(t)}, environment...)...)
	s.Writer = identity.Token(t, identity.Issuer(t), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
	s.Operator = identity.Token(t, identity.Issuer(t), issuer.OpsClientID, issuer.OpsClientSecret)
	return s
}

// StartOn starts a system on listener.
func StartOn(t testing.TB, listener net.Listener, environment ...string) *System {
	t.Helper()
	s, values := Stores(t, listener, environment...)
	// The settings' least RECONCILE_AFTER is too long for tests.
	reconcileAfter := values["RECONCILE_AFTER"]
	delete(values, "RECONCILE_AFTER")
	loaded, err := settings.LoadFrom(values)
	kit.Must(t, err)
	if reconcileAfter != "" {
		loaded.ReconcileAfter, err = time.ParseDuration(reconcileAfter)
		kit.Must(t, err)
	}
	s.Runtime = fn.NewRuntime(loaded, telemetry.NewLogger(s.Log, loaded.LogLevel), functions.All)
	handler, err := functions.Together(s.Runtime)
	kit.Must(t, err)
	s.serveOn(listener, handler, s.Runtime)
	return s
}

// serveOn serves handler until the test ends, and then closes the runtimes behind it.
func (s *System) serveOn(listener net.Listener, handler http.Handler, runtimes ...*fn.Runtime) {
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: documented(s.T, handler, s.Seen)}}
	server.Start()
	s.T.Cleanup(func() {
		server.Close()
		for _, runtime := range runtimes {
			runtime.Close()
		}
		if s.T.Failed() {
			s.T.Logf("log:\n%s", s.Log.tail(8000))
		}
	})
}
