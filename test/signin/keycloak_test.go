//go:build keycloak

package signin_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/keycloak"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

type realKeycloak struct{ *keycloak.Server }

func (k realKeycloak) URL() string { return k.Issuer() }

func (k realKeycloak) EndSessions(username string) error {
	return k.Server.EndSessions(context.Background(), username)
}

func (k realKeycloak) RotateKey() error { return k.RotateKeys(context.Background()) }

// The whole sign-in suite, with a real Keycloak.
func TestSignInAtKeycloak(t *testing.T) {
	root, err := kit.Root()
	kit.Must(t, err)
	type options struct {
		lifetime    time.Duration
		backChannel bool
	}
	started := map[options]realKeycloak{} // starting one is slow
	signInSuite(t, func(s *testing.T, gateway string, lifetime time.Duration, backChannel bool) system.Provider {
		if running, ok := started[options{lifetime, backChannel}]; ok {
			return running
		}
		o := keycloak.Options{
			Dir:          filepath.Join(root, ".local", "keycloak"),
			RedirectURIs: []string{gateway + "/login/callback"}, PostLogoutRedirectURIs: []string{gateway + "/"},
			AccessTokenLifetime: lifetime, Out: t.Output(),
		}
		if backChannel {
			o.BackChannelLogoutURL = gateway + "/logout/backchannel"
		}
		// It outlives the subtest that starts it.
		server, err := keycloak.Start(t.Context(), o)
		kit.Must(s, err)
		t.Cleanup(func() { _ = server.Stop() })
		started[options{lifetime, backChannel}] = realKeycloak{server}
		return started[options{lifetime, backChannel}]
	})
}
