//go:build browser

package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/shop"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
	"github.com/miniserversystem/miniserver/test/system"
)

const browserPatience = 20 * time.Second

// site is a system as make run starts it: with an issuer, and the demo shop in front on
// the same origin.
type site struct {
	*system.System
	origin string
	issuer *issuer.Server
	front  *httptest.Server
	// shopless is a site that has no demo shop.
	shopless bool
	// fails are suffixes of URLs that this test answers with 503.
	fails []string
}

func setupSite(t testing.TB, environment ...string) *site {
	t.Helper()
	listener := kit.Listen(t)
	origin := "http://" + listener.Addr().String()
	people, err := issuer.Start(context.Background(), kit.Listen(t), issuer.Options{
		RedirectURIs:         []string{origin + "/login/callback"},
		BackChannelLogoutURI: origin + "/logout/backchannel",
	})
	kit.Must(t, err)
	t.Cleanup(func() { _ = people.Stop() })
	s := &site{origin: origin, issuer: people}
	s.System = system.StartOn(t, kit.Listen(t), append([]string{"GATEWAY_URL=" + origin, "OIDC_ISSUER=" + people.URL()}, environment...)...)
	s.Writer = identity.Token(t, people.URL(), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
	goods, err := shop.New(shop.Options{
		GatewayURL: origin, IssuerURL: people.URL(),
		ClientID: issuer.PurchaseServiceClientID, ClientSecret: issuer.PurchaseServiceClientSecret,
		BankClientID: issuer.OpsClientID, BankClientSecret: issuer.OpsClientSecret,
	})
	kit.Must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/demo/", goods)
	mux.Handle("/", s.Gateway())
	s.front = &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	s.front.Start()
	t.Cleanup(s.front.Close)
	return s
}

// chromium finds the browser, once, and installs it where possible.
var chromium = sync.OnceValues(func() (string, error) {
	find := func() string {
		for _, name := range []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome"} {
			if path, err := exec.LookPath(name); err == nil {
				return path
			}
		}
		return ""
	}
	if path := find(); path != "" {
		return path, nil
	}
	if _, err := exec.LookPath("apt-get"); err == nil && os.Geteuid() == 0 {
		for _, arguments := range [][]string{{"update", "-q"}, {"install", "-qy", "--no-install-recommends", "chromium"}} {
			command := exec.Command("apt-get", arguments...)
			command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			if out, err := command.CombinedOutput(); err != nil {
				return "", fmt.Errorf("apt-get %s: %w: %s", arguments[0], err, out)
			}
		}
	}
	if path := find(); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("there is no browser; have root run: apt-get install chromium")
})
