package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	function "github.com/miniserversystem/miniserver"
	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/infra/dev/postgres"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/infra/dev/rabbitmq"
	"github.com/miniserversystem/miniserver/infra/dev/redis"
	"github.com/miniserversystem/miniserver/migrations"
	"github.com/miniserversystem/miniserver/pkg/process"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// Ports that are taken when they are free.
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

	environment map[string]string // what the functions are given
	people      map[string]string // what people are given, who may do everything
	own         []string          // which of these name what was started here
	stops       []func() error    // in the order of starting
}

func (l *Local) provide(variable, value string) {
	l.environment[variable], l.people[variable] = value, cmp.Or(l.people[variable], value)
	l.own = append(l.own, variable)
}

// Run starts everything, says where to look, waits until ctx ends, and stops
// what it started, in reverse order.
func (l *Local) Run(ctx context.Context) (err error) {
	started := time.Now()
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return err
	}
	unlock, err := lockDir(l.Dir)
	if err != nil {
		return err
	}
	defer unlock()
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
	for name, value := range l.environment {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	s, err := settings.Load()
	if err != nil {
		return err
	}
	if err := l.migrate(ctx, s); err != nil {
		return err
	}
	if err := l.writeEnv(s); err != nil {
		return err
	}
	f, err := function.Load()
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

// migrate brings the database up to date. One of our own also has logins for the
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

// startServers starts the private Postgres, Redis and NATS that no variable replaces.
func (l *Local) startServers(ctx context.Context) error {
	var binaries apt.Binaries
	if os.Getenv("DATABASE_URL") == "" || os.Getenv("REDIS_URL") == "" {
		var err error
		if binaries, err = apt.Ensure(ctx, l.Programs, l.Out); err != nil {
			return err
		}
	}
	start := func(variable string, start func() (url string, stop func() error, err error)) error {
		if value := os.Getenv(variable); value != "" {
			l.environment[variable] = value
			return nil
		}
		url, stop, err := start()
		if err != nil {
			return err
		}
		l.provide(variable, url)
		l.stops = append(l.stops, stop)
		return nil
	}
	return errors.Join(
		start("DATABASE_URL", func() (string, func() error, error) {
			server, err := postgres.Start(ctx, postgres.Options{Dir: filepath.Join(l.Dir, "postgres"), Binaries: binaries, Durable: true})
			if err != nil {
				return "", nil, err
			}
			for _, role := range migrations.Roles {
				l.environment[strings.ToUpper(role.Name)+"_DATABASE_URL"] = server.URLAs("miniserver_" + role.Name)
			}
			l.environment["MIGRATION_DATABASE_URL"] = server.URL()
			return server.URL(), server.Stop, nil
		}),
		start("REDIS_URL", func() (string, func() error, error) {
			server, err := redis.Start(ctx, redis.Options{Dir: filepath.Join(l.Dir, "redis"), Binaries: binaries, Users: functions.Users()})
			if err != nil {
				return "", nil, err
			}
			l.people["REDIS_URL"] = server.URL()
			return server.URLAs(functions.TogetherUser), server.Stop, nil
		}),
		start("NATS_URL", func() (string, func() error, error) {
			server, err := nats.Start(ctx, nats.Options{Dir: filepath.Join(l.Dir, "nats"), Port: natsPort, Users: functions.Users()})
			if err != nil {
				return "", nil, err
			}
			l.people["NATS_URL"] = server.URL()
			return server.URLAs(functions.TogetherUser), server.Stop, nil
		}),
		l.startRabbitMQ(ctx, start),
	)
}

// startRabbitMQ starts one where it carries transfers.
func (l *Local) startRabbitMQ(ctx context.Context, start func(string, func() (string, func() error, error)) error) error {
	if os.Getenv("TRANSFER_BROKER") != settings.RabbitMQ {
		return nil
	}
	return start("RABBITMQ_URL", func() (string, func() error, error) {
		server, err := rabbitmq.Start(ctx, rabbitmq.Options{
			Dir: filepath.Join(l.Dir, "rabbitmq"), Programs: l.Programs, Progress: l.Out,
		})
		if err != nil {
			return "", nil, err
		}
		return server.URL(), server.Stop, nil
	})
}

func (l *Local) startIssuer(ctx context.Context, gatewayURL string) error {
	if os.Getenv("OIDC_ISSUER") != "" {
		return nil
	}
	listener, err := listen("", issuerPort)
	if err != nil {
		return err
	}
	server, err := issuer.Start(context.WithoutCancel(ctx), listener, issuer.Options{
		RedirectURIs:           []string{gatewayURL + "/login/callback"},
		PostLogoutRedirectURIs: []string{gatewayURL + "/"},
		BackChannelLogoutURI:   gatewayURL + "/logout/backchannel",
		KeyDir:                 filepath.Join(l.Dir, "issuer"),
	})
	if err != nil {
		return err
	}
	l.provide("OIDC_ISSUER", server.URL())
	l.environment["OIDC_CLIENT_SECRET"] = issuer.WebClientSecret
	l.stops = append(l.stops, server.Stop)
	return nil
}

// listen on loopback: on port when it is given, otherwise on preferred or a free one.
func listen(port string, preferred int) (net.Listener, error) {
	if port != "" {
		return net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	}
	return proc.Listen(preferred)
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
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s: %w", readyWithin, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Clean removes what make run and make test keep, including what root has to keep
// outside of Dir so that Postgres can reach it.
func (l *Local) Clean(context.Context) error {
	for _, dir := range []string{"postgres", "redis", "nats", "rabbitmq", "test/postgres", "test/redis", "deps", "."} {
		if err := home.Remove(filepath.Join(l.Dir, dir)); err != nil {
			return err
		}
	}
	return nil
}

// lockDir makes sure that one process at a time uses dir. The lock goes with the
// process, however it ends.
func lockDir(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "run.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("it is already running here; %s says where", filepath.Join(dir, "env"))
	}
	return func() { _ = file.Close() }, nil
}
