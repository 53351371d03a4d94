package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/infra/dev/redis"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// system is everything in one process of its own, as infra/miniserver runs it, with its
// own database, Redis and NATS: two systems can be measured by turns.
type system struct {
	address  string // of the gateway
	database string // its URL
	pool     *pgxpool.Pool
	redis    *redis.Server
	process  *os.Process
	log      string // path of what it printed
}

// system starts a system that answers; environment overrides its settings. It is stopped
// when the experiment ends.
func (b *bench) system(ctx context.Context, name string, environment ...string) (*system, error) {
	return b.systemOf(ctx, b.serve, name, environment...)
}

// systemOf is system for a build of infra/miniserver, which brings its own migrations.
func (b *bench) systemOf(ctx context.Context, program, name string, environment ...string) (*system, error) {
	database, err := b.databaseOf(ctx, program, name)
	if err != nil {
		return nil, err
	}
	nats, err := b.nats(ctx, name)
	if err != nil {
		return nil, err
	}
	redis, err := b.redis(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &system{database: database, redis: redis, log: filepath.Join(b.dir, name+".log")}
	if s.pool, err = postgres.Open(database, 2, "cache_statement", nil); err != nil {
		return nil, err
	}
	b.onTidy(func() error { s.pool.Close(); return nil })
	process, port, err := b.exec(ctx, program, s.log, append([]string{
		"DATABASE_URL=" + database, "REDIS_URL=" + redis.URL(), "NATS_URL=" + nats.URL(), "OIDC_ISSUER=" + b.issuer.URL(), "LOG_LEVEL=warn",
		// The limit of one purchase service is not what is measured.
		"LIMIT_SERVICE_RATE=1000000", "LIMIT_SERVICE_BURST=1000000",
	}, environment...)...)
	if err != nil {
		return nil, err
	}
	s.process, s.address = process.Process, "127.0.0.1:"+strconv.Itoa(port)
	b.onTidy(func() error { return process.End(inOrder) })
	if err := answers(ctx, s.address, "/health/readiness", 10*time.Millisecond); err != nil {
		printed, _ := os.ReadFile(s.log)
		return nil, fmt.Errorf("%w; it printed %q", err, printed)
	}
	return s, nil
}

// nats starts an empty NATS, which is removed when the experiment ends.
func (b *bench) nats(ctx context.Context, name string) (*nats.Server, error) {
	dir := filepath.Join(b.dir, "nats-"+name)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	nats, err := nats.Start(ctx, nats.Options{Dir: dir})
	if err == nil {
		b.onTidy(func() error { return errors.Join(nats.Stop(), os.RemoveAll(dir)) })
	}
	return nats, err
}

// redis starts an empty Redis, which is removed when the experiment ends.
func (b *bench) redis(ctx context.Context, name string) (*redis.Server, error) {
	dir := filepath.Join(b.dir, "redis-"+name)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	redis, err := redis.Start(ctx, redis.Options{Dir: dir, Binaries: b.binaries})
	if err == nil {
		b.onTidy(func() error { return errors.Join(redis.Stop(), os.RemoveAll(dir)) })
	}
	return redis, err
}

// drained waits until every event's notification has finished.
func (s *system) drained(ctx context.Context) error {
	for {
		if left, err := s.left(ctx); err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// left counts the events whose notification has not finished.
func (s *system) left(ctx context.Context) (n int, err error) {
	err = s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM entitlement.outbox_events)
		- (SELECT count(*) FROM notification.notifications WHERE finished_at IS NOT NULL)
		+ (SELECT count(*) FROM entitlement.outbox_events WHERE finished_at IS NULL)`).Scan(&n)
	return n, err
}
