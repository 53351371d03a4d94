//go:build keycloak

package keycloak

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2/clientcredentials"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	realmfile "github.com/miniserversystem/miniserver/infra/keycloak"
	"github.com/miniserversystem/miniserver/test/kit"
)

// linkToDirectory returns a link to the distribution's directory, by whose name the test
// recognizes its own processes.
func linkToDirectory(t *testing.T) string {
	t.Helper()
	realms(t) // it exists now
	dir, err := directory()
	link := filepath.Join(t.TempDir(), "link")
	if err == nil {
		err = os.Symlink(dir, link)
	}
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func processesOf(dir string) (pids []string) {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range found {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), dir) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

func TestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := linkToDirectory(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var printed bytes.Buffer
	server, err := Start(ctx, Options{Dir: dir, Out: &printed, AccessTokenLifetime: 7 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", printed.String())
	if strings.Contains(printed.String(), "downloading") {
		t.Error("the distribution was fetched twice")
	}
	if len(processesOf(dir)) != 1 {
		t.Errorf("processes %v", processesOf(dir))
	}
	config := clientcredentials.Config{
		ClientID: issuer.OpsClientID, ClientSecret: issuer.OpsClientSecret, TokenURL: server.Issuer() + "/protocol/openid-connect/token",
	}
	if token, err := config.Token(t.Context()); err != nil || time.Until(token.Expiry) > 7*time.Second {
		t.Errorf("a token of 7 s: %v, %v", token, err)
	}
	cancel()
	for deadline := time.Now().Add(inOrder.Wait); len(processesOf(dir)) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("Keycloak still runs")
		}
	}
	for range 2 {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}
	answer, err := http.Get(shared.keycloak.Issuer())
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("the other Keycloak: %v, %v", answer, err)
	}
	answer.Body.Close()
}

// A port is hardest to recognize as taken when another Keycloak has it, with the same
// realm.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	dir := linkToDirectory(t)
	at, err := url.Parse(shared.keycloak.Issuer())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	found, err := install(t.Context(), Options{Dir: dir, Out: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if server, err := run(t.Context(), found, port, realmfile.Realm, io.Discard); !errors.Is(err, proc.ErrPortTaken) {
		t.Errorf("%v, %v; want ErrPortTaken", server, err)
	}
	if left := processesOf(dir); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
}

func TestStartIsGivenUp(t *testing.T) {
	t.Parallel()
	dir := linkToDirectory(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		kit.Soon(func() bool { return len(processesOf(dir)) > 0 || ctx.Err() != nil })
		cancel()
	}()
	if server, err := Start(ctx, Options{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v; want context.Canceled", server, err)
	}
	if left := processesOf(dir); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
}
