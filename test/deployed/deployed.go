// Package deployed uses a system that runs somewhere, from outside and as its users do: with
// the examples, a browser and requests. It is for tests of the ways to deploy.
package deployed

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/browser"
	"github.com/miniserversystem/miniserver/infra/dev/docker"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
	"github.com/miniserversystem/miniserver/test/standin"
)

// answerWithin bounds a request, with the start of the functions that it needs.
const answerWithin = time.Minute

// System is where it runs. Names under .localhost are this machine.
type System struct {
	Gateway, Issuer string
	// Root is the repository.
	Root string
	// Engine is Docker's, which the system runs in.
	Engine *docker.Engine

	began time.Time
}

// Start starts an engine, until the test ends, for a system that will answer there.
func Start(t testing.TB, gateway, issuer string) System {
	t.Helper()
	root, err := kit.Root()
	kit.Must(t, err)
	s := System{Gateway: gateway, Issuer: issuer, Root: root, began: time.Now()}
	s.Engine, err = docker.Start(t.Context(), docker.Options{
		Dir: filepath.Join(root, ".local", "docker"), Programs: filepath.Join(root, ".local", "deps"), Progress: os.Stderr,
	})
	kit.Must(t, err)
	t.Cleanup(func() { kit.Must(t, s.Engine.Stop()) })
	s.Say("the engine answers")
	return s
}

// Say prints progress, with the time since Start.
func (s System) Say(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "%7.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, arguments...))
}

// Examples runs the examples that need no session of the development issuer's.
func (s System) Examples(t testing.TB) {
	t.Helper()
	for _, name := range []string{"purchase.sh", "refund.sh", "matchmaking.sh", "transfer.sh"} {
		kit.Must(t, s.Example(t.Context(), name))
	}
}

// Example runs one of the examples.
func (s System) Example(ctx context.Context, name string) error {
	return s.run(exec.CommandContext(ctx, filepath.Join(s.Root, "examples", name)))
}

// Browser signs in at the issuer in Chromium, and sees what is granted.
func (s System) Browser(t testing.TB) {
	t.Helper()
	command := exec.Command("go", "test", "-tags", "browser,deployed", "-count=1", "-run", "TestDeployed", "./test/browser")
	command.Dir = s.Root
	kit.Must(t, s.run(command))
}

func (s System) run(command *exec.Cmd) error {
	command.Env = append(os.Environ(), "GATEWAY_URL="+s.Gateway, "OIDC_ISSUER="+s.Issuer)
	return standin.Run(command)
}

// Token returns one of the purchase service's, which lasts for minutes.
func (s System) Token(t testing.TB) string {
	t.Helper()
	token, err := s.token(t.Context())
	kit.Must(t, err)
	return token
}

func (s System) token(ctx context.Context) (string, error) {
	return identity.TokenOf(ctx, s.Issuer, issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
}

// once sends each request on a connection of its own: on one that was used before, Go's
// client would send it again unasked when the connection breaks.
var once = &http.Client{Transport: &http.Transport{DialContext: browser.Dial, DisableKeepAlives: true}}

// Do sends a request, whose key may be empty, and returns the answer's status and body, of a
// live stream the status alone.
func (s System) Do(ctx context.Context, token, method, path, key, body string) (status int, answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.Gateway+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := once.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	if response.Header.Get("Content-Type") == "text/event-stream" {
		return response.StatusCode, "", nil
	}
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}
