// Package process is one process: its settings, its log and the connections that its
// functions share. Nothing connects before it is used.
package process

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/live"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/pkg/rabbitmq"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

// Process is safe for concurrent use.
type Process struct {
	Settings settings.Settings
	Log      *slog.Logger
	// Worker names this process in locked_by, and to brokers.
	Worker string
	// Life ends when the process begins to shut down: ticks in progress then claim no more.
	Life context.Context
	// Ticks are those in progress, which Close waits for.
	Ticks sync.WaitGroup

	endLife context.CancelFunc

	mutex   sync.Mutex
	pools   map[string]*pgxpool.Pool         // by URL
	redis   map[string]redis.UniversalClient // by URL
	nats    *jetstream.Client
	publish *rabbitmq.Client
	consume *rabbitmq.Client
	live    *live.Hub

	metrics func() (*telemetry.Metrics, error)
	tracing func() (*telemetry.Tracing, error)
}

// New returns a process. Close it.
func New(s settings.Settings, log *slog.Logger) *Process {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	life, end := context.WithCancel(context.Background())
	worker := fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:6])
	return &Process{
		Settings: s, Log: log, Worker: worker, Life: life, endLife: end,
		pools: map[string]*pgxpool.Pool{}, redis: map[string]redis.UniversalClient{},
		metrics: sync.OnceValues(func() (*telemetry.Metrics, error) {
			telemetry.LogErrors(log)
			return telemetry.NewMetrics(s, worker, telemetry.LevelOf(log))
		}),
		tracing: sync.OnceValues(func() (*telemetry.Tracing, error) {
			if s.TracesURL() != "" {
				telemetry.LogErrors(log)
			}
			return telemetry.NewTracing(s, worker)
		}),
	}
}

// Postgres returns the pool of a domain's database.
func (p *Process) Postgres(domain string) (*pgxpool.Pool, error) {
	url := p.Settings.Database(domain)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if pool, ok := p.pools[url]; ok {
		return pool, nil
	}
	tracer, err := p.statements()
	if err != nil {
		return nil, err
	}
	pool, err := postgres.Open(url, p.Settings.PostgresPoolSize, p.Settings.PostgresExecMode, tracer)
	if err != nil {
		return nil, err
	}
	if err := p.observePool(pool, domain); err != nil {
		pool.Close()
		return nil, err
	}
	p.pools[url] = pool
	return pool, nil
}

// NATS returns the JetStream client.
func (p *Process) NATS() *jetstream.Client {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.nats == nil {
		p.nats = jetstream.New(p.Settings.NATSURL, p.Worker, jetstream.Limits{
			MaxBytes: p.Settings.StreamMaxBytes, MaxAge: p.Settings.StreamMaxAge, Replicas: p.Settings.StreamReplicas,
		})
	}
	return p.nats
}

// RabbitMQ returns one client for publishing and one for consuming. A broker that is
// full stops reading from connections that publish; another connection must empty it.
func (p *Process) RabbitMQ() (publish, consume *rabbitmq.Client) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.publish == nil {
		queue := rabbitmq.Queue(p.Settings.RabbitMQQueue)
		p.publish = rabbitmq.New(p.Settings.RabbitMQURL, p.Worker+" publishes", queue)
		p.consume = rabbitmq.New(p.Settings.RabbitMQURL, p.Worker+" consumes", queue)
	}
	return p.publish, p.consume
}

// Live returns the hub of live messages, nil where there is no NATS.
func (p *Process) Live() *live.Hub {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.live == nil && p.Settings.NATSURL != "" {
		p.live = live.New(p.Settings.NATSURL, p.Worker)
	}
	return p.live
}

// Policy is how rows are leased, from the settings.
func (p *Process) Policy() lease.Policy {
	s := p.Settings
	return lease.Policy{
		Batch: s.LeaseBatch, Lease: s.LeaseDuration, MaxAttempts: s.LeaseMaxAttempts,
		BackoffBase: s.LeaseBackoffBase, BackoffCap: s.LeaseBackoffCap,
	}
}

// closeTimeout bounds how long Close waits for ticks in progress.
const closeTimeout = 10 * time.Second

// StopClaiming ends Life: ticks in progress end after the batch that they hold, and
// later ones do nothing.
func (p *Process) StopClaiming() { p.endLife() }

// Close ends Life, waits up to 10 s for ticks in progress, and disconnects.
func (p *Process) Close() {
	p.StopClaiming()
	idle := make(chan struct{})
	go func() { p.Ticks.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-time.After(closeTimeout):
		p.Log.Warn("a tick did not end in time; its leases will")
	}
	p.closeTelemetry() // the last metrics are read from the stores
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.nats != nil {
		p.nats.Close()
	}
	if p.publish != nil {
		p.publish.Close()
		p.consume.Close()
	}
	if p.live != nil {
		p.live.Close()
	}
	for _, client := range p.redis {
		_ = client.Close() // nothing of ours is buffered in it
	}
	for _, pool := range p.pools {
		pool.Close()
	}
}
