package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/caarlos0/env/v11"

	function "github.com/miniserversystem/miniserver"
	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/migrations"
	"github.com/miniserversystem/miniserver/pkg/process"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// Ports that are used when they are free.
const (
	gatewayPort = 8080
	issuerPort  = 8081
	natsPort    = 4222
	metricsPort = 9464
)

// Local is the whole system on one machine.
type Local struct {
	Dir      string    // where data, logs and the env file are
	Programs string    // where server programs are unpacked
	Out      io.Writer // where the first screen goes

	environment map[string]string // of the functions
	people      map[string]string // of people, who may do everything
	own         []string          // those whose servers were started here
	stops       []func() error    // in the order of starting
}

func (l *Local) provide(variable, value string) {
	l.environment[variable], l.people[variable] = value, cmp.Or(l.people[variable], value)
	l.own = append(l.own, variable)
}

// Run starts everything, prints the addresses, waits until ctx ends, and stops what it
// started, in reverse order.
func (l *Local) Run(ctx context.Context) (err error) {
	started := time.Now()
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return err
	}
	// One process at a time uses Dir. The lock ends with the process, however that ends.
	held, err := proc.TryLock(filepath.Join(l.Dir, "run.lock"))
	if errors.Is(err, proc.ErrInUse) {
		return fmt.Errorf("it is already running here; %s says where", l.envPath())
	}
	if err != nil {
		return err
	}
	defer held.Close()
	defer func() { err = errors.Join(err, l.stop()) }()

	if err := l.forgetOwn(); err != nil {
		return err
	}
	l.environment, l.people = map[string]string{"DEBUG_ENDPOINTS": "true"}, map[string]string{}
	if err := l.startServers(ctx); err != nil {
		return err
	}
	return l.serve(ctx, started)
}

func (l *Local) serve(ctx context.Context, started time.Time) error {
	listener, err := listen(os.Getenv("PORT"), gatewayPort)
	if err != nil {
		return err
	}
	gatewayURL := "http://" + listener.Addr().String()
	if err := l.startIssuer(ctx, gatewayURL); err != nil {
		return errors.Join(err, listener.Close())
	}
	if os.Getenv("GATEWAY_URL") == "" {
		l.provide("GATEWAY_URL", gatewayURL)
	}
	if os.Getenv("METRICS_ADDRESS") == "" {
		port, err := proc.FreePort(metricsPort)
		if err != nil {
			return err
		}
		l.environment["METRICS_ADDRESS"] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	environment := env.ToMap(os.Environ())
	maps.Copy(environment, l.environment)
	s, err := settings.LoadFrom(environment)
	if err != nil {
		return err
	}
	if err := l.migrate(ctx, s); err != nil {
		return err
	}
	if err := l.writeEnv(s); err != nil {
		return err
	}
	f, err := function.Load(s)
	if err != nil {
		return err
	}
	l.stops = append(l.stops, func() error { return f.Stop(context.Background()) })
	if err := f.Start(ctx, nil); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- process.Serve(ctx, listener, l.front(s, f), s, f.StopClaiming) }()
	if err := waitReady(ctx, f); err != nil {
		return err
	}
	l.firstScreen(s, time.Since(started))
	return <-served
}

// migrate brings the database up to date. A private one also gets logins for the
// functions, with the least rights.
func (l *Local) migrate(ctx context.Context, s settings.Settings) error {
	for _, domain := range migrations.Domains {
		if err := migrations.Up(ctx, cmp.Or(s.MigrationDatabaseURL, s.Database(domain)), domain); err != nil {
			return err
		}
	}
	if l.environment["MIGRATION_DATABASE_URL"] == "" {
		return nil
	}
	for _, role := range migrations.Roles {
		if err := migrations.Grant(ctx, s.MigrationDatabaseURL, s.Database(role.Name), role); err != nil {
			return err
		}
	}
	return nil
}

func (l *Local) stop() error {
	var errs []error
	for i := len(l.stops) - 1; i >= 0; i-- {
		errs = append(errs, l.stops[i]())
	}
	return errors.Join(errs...)
}

const readyWithin = 20 * time.Second

func waitReady(ctx context.Context, f *function.Function) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		err := f.NotReady(ctx)
		if err == nil {
			return nil
		}
		if proc.Sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("not ready within %s: %w", readyWithin, err)
		}
	}
}

// Clean removes what make run and make test keep, including what root has to keep
// outside of Dir so that Postgres can reach it.
func (l *Local) Clean(context.Context) error {
	for _, dir := range []string{"postgres", "redis", "nats", "rabbitmq", "prometheus", "test/postgres", "test/redis", "deps", "."} {
		if err := home.Remove(filepath.Join(l.Dir, dir)); err != nil {
			return err
		}
	}
	return nil
}
