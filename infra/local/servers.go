package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/infra/dev/postgres"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/infra/dev/rabbitmq"
	"github.com/miniserversystem/miniserver/infra/dev/redis"
	"github.com/miniserversystem/miniserver/migrations"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

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

// startRabbitMQ starts a RabbitMQ if it carries transfers.
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

// listen listens on loopback: on port if that is given, otherwise on preferred or a free
// one.
func listen(port string, preferred int) (net.Listener, error) {
	if port != "" {
		return net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	}
	return proc.Listen(preferred)
}
