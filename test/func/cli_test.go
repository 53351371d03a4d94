//go:build func

package funccli

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

// buildWithin bounds a command that builds, on a busy machine too.
const buildWithin = 8 * time.Minute

// cli returns a command of the func CLI for the function in dir, without the
// configuration of the user who runs the tests.
func cli(t testing.TB, dir string, arguments ...string) *exec.Cmd {
	t.Helper()
	root, err := kit.Root()
	kit.Must(t, err)
	binary := filepath.Join(root, ".local", "bin", "tools", "func")
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("there is no func CLI; build it with: make func (%v)", err)
	}
	command := exec.CommandContext(t.Context(), binary, arguments...)
	command.Dir = dir
	// -trimpath lets all tests' trees share the build cache.
	command.Env = append(os.Environ(), "GOFLAGS=-trimpath -buildvcs=false", "XDG_CONFIG_HOME="+t.TempDir(), "FUNC_REGISTRY=registry.example.com/miniserver")
	return command
}

// running is a `func run` whose function is ready.
type running struct {
	*program.Program
	t   testing.TB
	dir string
	url string
}

// run starts `func run` in a tree of its own and returns when the CLI reports that the
// function runs.
func run(t testing.TB, address string, environment ...string) *running {
	t.Helper()
	r := &running{t: t, dir: tree(t), url: "http://" + address}
	arguments := []string{"run", "--address", address}
	for _, pair := range environment {
		arguments = append(arguments, "-e", pair)
	}
	began := time.Now()
	r.Program = program.Start(t, cli(t, r.dir, arguments...))
	for deadline := time.Now().Add(buildWithin); !strings.Contains(r.Printed(), "Running on host port"); kit.Pause(20 * time.Millisecond) {
		select {
		case <-r.Ended:
			t.Fatalf("func run ended: %v\n%s", r.Err(), r.Printed())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the function is not ready after %s", buildWithin)
		}
	}
	t.Logf("func run to ready, with its build: %s", time.Since(began).Round(100*time.Millisecond))
	return r
}

// terminate ends `func run` as a supervisor would, and the function with it.
func (r *running) terminate() {
	r.t.Helper()
	r.Terminate()
	kit.Must(r.t, r.Wait(within))
	if connection, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://")); err == nil {
		_ = connection.Close()
		r.t.Error("the function still runs without func run")
	}
}

// invoke runs `func invoke` in the tree of r, and returns what it printed.
func (r *running) invoke(arguments ...string) string {
	r.t.Helper()
	out, err := cli(r.t, r.dir, append([]string{"invoke"}, arguments...)...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("func invoke %q: %v\n%s", arguments, err, out)
	}
	return string(out)
}

// wantHealthy checks the probes that func.yaml names.
func wantHealthy(t testing.TB, base string) {
	t.Helper()
	for _, path := range []string{"/health/liveness", "/health/readiness"} {
		response, err := http.Get(base + path)
		kit.Must(t, err)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s answered %s, want 200", path, response.Status)
		}
	}
}
