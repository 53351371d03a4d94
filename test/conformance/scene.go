package conformance

import (
	"context"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
)

const (
	// publicURL is the gateway's address for clients. https makes its cookies those of a
	// deployment.
	publicURL = "https://game.example"
	// startWithin bounds how long an instance may take to answer, on a busy machine.
	startWithin = 30 * time.Second
	// grace is SHUTDOWN_GRACE.
	grace = 10 * time.Second
)

// scene is an instance and its stores.
type scene struct {
	t           testing.TB
	adapter     Adapter
	environment map[string]string
	pool        *pgxpool.Pool // without the link
	postgres    *kit.Link     // between the functions and Postgres
	nats        *kit.Link
	instance    Instance
	writer, ops string // access tokens of the purchase service and of an operator
}

// newScene starts the stores; links to them are cut until mended.
func newScene(t testing.TB, a Adapter) *scene {
	t.Helper()
	database := kit.Database(t)
	private, public, err := auth.NewKeyPair()
	kit.Must(t, err)
	s := &scene{t: t, adapter: a, pool: kit.Connect(t, database)}
	var databaseURL, natsURL string
	s.postgres, databaseURL = kit.Through(t, database)
	s.nats, natsURL = kit.Through(t, kit.NATS(t).URL())
	s.postgres.Cut()
	s.nats.Cut()
	s.environment = map[string]string{
		"DATABASE_URL": databaseURL, "NATS_URL": natsURL, "REDIS_URL": kit.Redis(t).URL(),
		"OIDC_ISSUER": identity.Issuer(t), "OIDC_CLIENT_SECRET": issuer.WebClientSecret, "GATEWAY_URL": publicURL,
		"IDENTITY_SIGNING_KEY": private, "IDENTITY_VERIFY_KEYS": public,
		"DEBUG_ENDPOINTS": "true", "SHUTDOWN_GRACE": grace.String(),
		// Only ticks carry events: a wake would hide a tick that does not come.
		"WAKES": "false", "SCHEDULE": "auto",
	}
	if a.Ticked {
		s.environment["SCHEDULE"] = "off"
	}
	maps.Copy(s.environment, a.Overrides)
	s.writer = identity.Token(t, identity.Issuer(t), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
	s.ops = identity.Token(t, identity.Issuer(t), issuer.OpsClientID, issuer.OpsClientSecret)
	return s
}

// in returns the scene for a subtest.
func (s *scene) in(t testing.TB) *scene {
	other := *s
	other.t = t
	return &other
}

// start mends the links, starts functions and waits until they are ready.
func (s *scene) start(functions ...string) {
	s.t.Helper()
	s.postgres.Mend()
	s.nats.Mend()
	s.begin(functions...)
	kit.Within(s.t, startWithin, "ready", func() bool { return s.probe(Readiness) == http.StatusOK })
}

// begin starts functions and waits until they are alive and both probes are answered: a
// proxy in front of a function, which answers readiness, may start after it.
func (s *scene) begin(functions ...string) {
	s.t.Helper()
	s.instance = s.adapter.Start(s.t, s.environment, functions...)
	kit.Within(s.t, startWithin, "alive", func() bool { return s.probe(Liveness) == http.StatusOK && s.probe(Readiness) != 0 })
}

// probe returns a probe's status, 0 without an answer.
func (s *scene) probe(p Probe) int {
	status, err := s.instance.Probe(p)
	if err != nil {
		return 0
	}
	return status
}

// count returns the one number that a query selects.
func (s *scene) count(sql string, args ...any) int {
	s.t.Helper()
	var n int
	kit.Must(s.t, s.pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}
