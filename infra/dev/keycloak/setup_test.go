//go:build keycloak

package keycloak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const startTimeout = 20 * time.Minute // the first time downloads

// shared are the servers that all tests use; starting them takes too long for each test.
var shared struct {
	once     sync.Once
	err      error
	client   *webClient
	keycloak *Server
	develop  *issuer.Server
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, stop := range []func() error{
		func() error { return shared.keycloak.Stop() },
		func() error { return shared.develop.Stop() },
		func() error { shared.client.Close(); return nil },
	} {
		if shared.err == nil && shared.client != nil {
			if err := stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = max(code, 1)
			}
		}
	}
	os.Exit(code)
}

func directory() (string, error) {
	root, err := home.Repository()
	return filepath.Join(root, ".local", "keycloak"), err
}

func startShared() error {
	listener, err := proc.Listen(0)
	if err != nil {
		return err
	}
	shared.client = newWebClient(listener)
	if listener, err = proc.Listen(0); err != nil {
		return err
	}
	shared.develop, err = issuer.Start(context.Background(), listener, issuer.Options{
		RedirectURIs: []string{shared.client.URL + "/login/callback"}, BackChannelLogoutURI: shared.client.URL + "/logout/backchannel",
	})
	if err != nil {
		return err
	}
	dir, err := directory()
	if err != nil {
		return err
	}
	// The context is the server's, so only the start is bounded by a timer.
	ctx, cancel := context.WithCancel(context.Background())
	defer time.AfterFunc(startTimeout, cancel).Stop()
	shared.keycloak, err = Start(ctx, Options{
		Dir: dir, Out: os.Stderr,
		RedirectURIs:         []string{shared.client.URL + "/login/callback"},
		BackChannelLogoutURL: shared.client.URL + "/logout/backchannel",
	})
	return err
}
