package fn

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/live"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/pkg/rabbitmq"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

// Runtime is one process: its settings and the connections that its functions
// share. Nothing connects before it is used.
type Runtime struct {
	Settings  settings.Settings
	Log       *slog.Logger
	Functions []Function // the registry
	// Invoke reaches any function by name: the URL's host is the name.
	Invoke http.RoundTripper

	worker string
	// life ends when the process shuts down; ticks in progress stop claiming then.
	life    context.Context
	endLife context.CancelFunc
	ticks   sync.WaitGroup

	mutex   sync.Mutex
	pools   map[string]*pgxpool.Pool // by URL
	nats    *jetstream.Client
	publish *rabbitmq.Client
	consume *rabbitmq.Client
	redis   map[string]redis.UniversalClient // by URL
	live    *live.Hub
	metrics *telemetry.Metrics
	wakers  map[string]*waker
	ready   map[string]bool // stores that answered once
}

// NewRuntime returns the runtime of a process that runs functions. invoke may be
// set later, before the first request.
func NewRuntime(s settings.Settings, log *slog.Logger, functions []Function) *Runtime {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	life, end := context.WithCancel(context.Background())
	return &Runtime{
		Settings: s, Log: log, Functions: functions,
		worker: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:6]),
		life:   life, endLife: end,
		pools: map[string]*pgxpool.Pool{}, redis: map[string]redis.UniversalClient{}, wakers: map[string]*waker{}, ready: map[string]bool{},
	}
}

// Missing returns an error that names the settings that f needs and does not
// have, nil when it can run.
func (rt *Runtime) Missing(f Function) error {
	s := rt.Settings
	var missing []string
	need := func(condition bool, text string) {
		if condition {
			missing = append(missing, text)
		}
	}
	need(slices.ContainsFunc(f.Domains, func(domain string) bool { return s.Database(domain) == "" }), "DATABASE_URL (postgres://…)")
	need(slices.Contains(f.Stores, NATS) && s.NATSURL == "", "NATS_URL (nats://…)")
	sessions, _ := s.SessionRedis()
	need(slices.Contains(f.Stores, Redis) && !f.Public && s.RedisURL == "", "REDIS_URL (redis://…)")
	need(slices.Contains(f.Stores, Redis) && f.Public && sessions == "", "REDIS_URL or SESSION_REDIS_URL (redis://…)")
	need(slices.Contains(f.Stores, RabbitMQ) && s.TransferBroker == settings.RabbitMQ && s.RabbitMQURL == "", "RABBITMQ_URL (amqp://…, for TRANSFER_BROKER=rabbitmq)")
	need(f.Public && s.OIDCIssuer == "", "OIDC_ISSUER (the issuer of access tokens)")
	need(f.Public && s.IdentitySigningKey == "", "IDENTITY_SIGNING_KEY (make identity-key prints one)")
	need(!f.Public && len(f.Routes)+len(f.Events) > 0 && s.IdentityVerifyKeys == "", "IDENTITY_VERIFY_KEYS (make identity-key prints them)")
	need(rt.Invoke == nil && s.FunctionURL == "" && f.Public, "FUNCTION_URL (where the other functions are, with {function} in it)")
	if len(missing) == 0 {
		return nil
	}
	return errors.New("function " + f.Name + " needs " + strings.Join(missing, ", "))
}

// Env is what one function is given.
type Env struct {
	*Runtime
	Function Function
	Mux      *http.ServeMux
	api      *api
	verifier *auth.Verifier
	// Authorize returns who calls, when they may use route; it may set headers of the
	// answer. Functions believe the gateway's statement; the gateway has its own way.
	Authorize func(w http.ResponseWriter, r *http.Request, route Route) (auth.Identity, error)
}

// Serves reports whether a route exists here: debug routes do where they are
// switched on.
func (rt *Runtime) Serves(route Route) bool { return !route.Debug || rt.Settings.DebugEndpoints }

// Logger is the process's log with the function's name.
func (e *Env) Logger() *slog.Logger { return e.Log.With("function", e.Function.Name) }

// Postgres returns the pool of a domain's database. It connects on first use.
func (rt *Runtime) Postgres(domain string) (*pgxpool.Pool, error) {
	url := rt.Settings.Database(domain)
	rt.mutex.Lock()
	defer rt.mutex.Unlock()
	if pool, ok := rt.pools[url]; ok {
		return pool, nil
	}
	pool, err := postgres.Open(url, rt.Settings.PostgresPoolSize, rt.Settings.PostgresExecMode)
	if err != nil {
		return nil, err
	}
	rt.pools[url] = pool
	return pool, nil
}

// NATS returns the process's JetStream client. It connects on first use.
func (rt *Runtime) NATS() *jetstream.Client {
	rt.mutex.Lock()
	defer rt.mutex.Unlock()
	if rt.nats == nil {
		rt.nats = jetstream.New(rt.Settings.NATSURL, rt.worker, jetstream.Limits{
			MaxBytes: rt.Settings.StreamMaxBytes, MaxAge: rt.Settings.StreamMaxAge, Replicas: rt.Settings.StreamReplicas,
		})
	}
	return rt.nats
}

// RabbitMQ returns the process's RabbitMQ client for publishing, and the one for
// consuming: a broker that is full stops reading from connections that publish, and
// must be emptied by others. Both connect on first use.
func (rt *Runtime) RabbitMQ() (publish, consume *rabbitmq.Client) {
	rt.mutex.Lock()
	defer rt.mutex.Unlock()
	if rt.publish == nil {
		queue := rabbitmq.Queue(rt.Settings.RabbitMQQueue)
		rt.publish = rabbitmq.New(rt.Settings.RabbitMQURL, rt.worker+" publishes", queue)
		rt.consume = rabbitmq.New(rt.Settings.RabbitMQURL, rt.worker+" consumes", queue)
	}
	return rt.publish, rt.consume
}

// Live returns the process's hub of live messages, nil where there is no NATS. It
// connects on first use.
func (rt *Runtime) Live() *live.Hub {
	rt.mutex.Lock()
	defer rt.mutex.Unlock()
	if rt.live == nil && rt.Settings.NATSURL != "" {
		rt.live = live.New(rt.Settings.NATSURL, rt.worker)
	}
	return rt.live
}

// Limits of a Redis call. A Redis that hangs must not hold up requests that can be
// answered without it.
const (
	redisDialTimeout = time.Second
	redisCallTimeout = time.Second
	redisRedirects   = 3
)

// Redis returns the process's client of the Redis that holds the queues. It
// connects on first use, and never sends a command twice by itself: scripts are not
// harmless when run twice.
func (rt *Runtime) Redis() (redis.UniversalClient, error) {
	return rt.redisAt("REDIS_URL", rt.Settings.RedisURL, rt.Settings.RedisCluster)
}

// SessionRedis is Redis for what the gateway keeps: sessions, sign-ins in progress,
// limits and open streams. It is the same client where both have one URL.
func (rt *Runtime) SessionRedis() (redis.UniversalClient, error) {
	url, cluster := rt.Settings.SessionRedis()
	return rt.redisAt("SESSION_REDIS_URL", url, cluster)
}

func (rt *Runtime) redisAt(setting, url string, cluster bool) (redis.UniversalClient, error) {
	rt.mutex.Lock()
	defer rt.mutex.Unlock()
	if client, ok := rt.redis[url]; ok {
		return client, nil
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		// Its text would hold the password.
		return nil, errors.New(setting + " is not a redis:// or rediss:// URL")
	}
	options.MaxRetries, options.DialerRetries = -1, 1
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = redisDialTimeout, redisCallTimeout, redisCallTimeout
	options.PoolTimeout = redisCallTimeout
	options.ContextTimeoutEnabled = true
	logging.Disable() // it would print each failed dial; errors reach the caller
	if !cluster {
		rt.redis[url] = redis.NewClient(options)
	} else {
		rt.redis[url] = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{options.Addr}, Username: options.Username, Password: options.Password, TLSConfig: options.TLSConfig,
			DialerRetries: options.DialerRetries, DialTimeout: options.DialTimeout, ReadTimeout: options.ReadTimeout,
			WriteTimeout: options.WriteTimeout, PoolTimeout: options.PoolTimeout, ContextTimeoutEnabled: true,
			// Sends a command again where a node says that another has its slot, and, which
			// the scripts bear, where a node does not answer.
			MaxRedirects: redisRedirects, MaxRetries: options.MaxRetries,
		})
	}
	return rt.redis[url], nil
}

// Meter returns where instruments are made. Without METRICS_ADDRESS they count
// nothing, at no cost.
func (rt *Runtime) Meter(name string) (metric.Meter, error) {
	if rt.Settings.MetricsAddress == "" {
		return noop.NewMeterProvider().Meter(name), nil
	}
	metrics, err := rt.Metrics()
	if err != nil {
		return nil, err
	}
	return metrics.Meter(name), nil
}

// Metrics returns the process's metrics. They are made on first use.
func (rt *Runtime) Metrics() (*telemetry.Metrics, error) {
	rt.mutex.Lock()
	defer rt.mutex.Unlock()
	if rt.metrics != nil {
		return rt.metrics, nil
	}
	metrics, err := telemetry.NewMetrics()
	if err == nil {
		rt.metrics = metrics
		// The SDK has one for the whole process, and prints to standard error without.
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { rt.Log.Warn("a metric was not read", "error", err.Error()) }))
	}
	return metrics, err
}

// Ending is closed when the process begins to shut down.
func (rt *Runtime) Ending() <-chan struct{} { return rt.life.Done() }

// Worker names this process in locked_by.
func (rt *Runtime) Worker() string { return rt.worker }

// Policy is the lease's, from the settings.
func (rt *Runtime) Policy() lease.Policy {
	s := rt.Settings
	return lease.Policy{
		Batch: s.LeaseBatch, Lease: s.LeaseDuration, MaxAttempts: s.LeaseMaxAttempts,
		BackoffBase: s.LeaseBackoffBase, BackoffCap: s.LeaseBackoffCap,
	}
}

// closeTimeout bounds how long Close waits for ticks in progress.
const closeTimeout = 10 * time.Second

// StopClaiming makes ticks in progress end after the batch that they hold, and
// later ones do nothing.
func (rt *Runtime) StopClaiming() { rt.endLife() }

// Close stops claiming, waits for what is in progress, and disconnects.
func (rt *Runtime) Close() {
	rt.StopClaiming()
	idle := make(chan struct{})
	go func() { rt.ticks.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-time.After(closeTimeout):
		rt.Log.Warn("a tick did not end in time; its leases will")
	}
	rt.mutex.Lock()
	defer rt.mutex.Unlock()
	if rt.nats != nil {
		rt.nats.Close()
	}
	if rt.publish != nil {
		rt.publish.Close()
		rt.consume.Close()
	}
	if rt.live != nil {
		rt.live.Close()
	}
	for _, client := range rt.redis {
		_ = client.Close() // nothing of ours is buffered in it
	}
	for _, pool := range rt.pools {
		pool.Close()
	}
	if rt.metrics != nil {
		_ = rt.metrics.Close() // nothing is sent anywhere
	}
}
