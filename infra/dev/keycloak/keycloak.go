// Package keycloak runs a real Keycloak on this machine, for tests of what must work with
// it as well as with the development issuer: its realm has the same users, clients,
// secrets, roles and claims (see infra/dev/issuer), so a gateway switches over by
// OIDC_ISSUER alone.
//
// The passwords and secrets are published in realm.json. Everything listens on
// 127.0.0.1 only; never expose it.
package keycloak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// Version is Keycloak's, the newest one that runs on Java 17, which is Debian 12's.
const Version = "26.7.3"

// Options say where Keycloak is kept, and how the web client differs from that of the
// realm in infra/keycloak.
type Options struct {
	// Dir keeps the distribution, about 190 MB, from one start to the next. It is
	// created if missing; several processes may use it at once.
	Dir string
	// RedirectURIs of the web client, compared exactly; empty means realm.json's.
	RedirectURIs []string
	// PostLogoutRedirectURIs of the web client, compared exactly; empty means
	// realm.json's.
	PostLogoutRedirectURIs []string
	// BackChannelLogoutURL is notified of every session of the web client that ends.
	// Empty: no client is notified.
	BackChannelLogoutURL string
	// AccessTokenLifetime is in whole seconds; zero means realm.json's, five minutes.
	AccessTokenLifetime time.Duration
	// Out gets a line for each slow step: the download, the start. Nil: nothing is
	// printed.
	Out io.Writer
}

// Server is a running Keycloak.
type Server struct {
	issuer string
	admin  admin
	stop   func() error
}

// Start returns a Keycloak that answers, with nothing in it but the realm. The first
// start fetches the distribution from Maven Central and builds it, which takes a minute
// or two; later ones take 15 to 60 seconds. Keycloak ends when ctx ends, when Stop is
// called, or when this process dies, and then forgets everything. Errors say what to do,
// or quote Keycloak's log.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	realm, err := configure(o)
	if err != nil {
		return nil, fmt.Errorf("keycloak: %w", err)
	}
	found, err := installed(ctx, &o)
	if err != nil {
		return nil, fmt.Errorf("keycloak: %w", err)
	}
	var server *Server
	_, err = proc.OnFreePort(0, "", func(port int) (err error) {
		server, err = run(ctx, found, port, realm, o.Out)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("keycloak: %w", err)
	}
	return server, nil
}

// Fetch returns the folder of the distribution, which Start would use. Only Dir and Out are
// needed.
func Fetch(ctx context.Context, o Options) (home string, err error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	found, err := installed(ctx, &o)
	if err != nil {
		return "", fmt.Errorf("keycloak: %w", err)
	}
	return found.home, nil
}

func installed(ctx context.Context, o *Options) (found installation, err error) {
	if o.Dir == "" {
		return found, errors.New("Options.Dir is empty")
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return found, err
	}
	return install(ctx, *o)
}

// Issuer is the realm's URL: the `iss` of its tokens, and OIDC_ISSUER.
func (s *Server) Issuer() string { return s.issuer }

// Stop ends Keycloak and returns when its processes are gone, within 20 seconds at
// worst. It can be called more than once.
func (s *Server) Stop() error { return s.stop() }
