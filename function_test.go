package function_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

func TestMain(m *testing.M) {
	code := kit.Main(m)
	program.Clean()
	os.Exit(code)
}

// miniserver builds infra/miniserver, which runs the root package as a container does.
func miniserver(t *testing.T) string {
	t.Helper()
	return program.Build(t, ".", "./infra/miniserver")
}

// A process that cannot run prints one line that says why, and exits with a status.
func TestOneClearLine(t *testing.T) {
	t.Parallel()
	binary := miniserver(t)
	_, keys, err := auth.NewKeyPair()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, says  string
		environment []string
	}{
		{"unknown function", `there is no function "nope"`, []string{"FUNCTION=nope"}},
		{"missing database", "function relay needs DATABASE_URL", []string{"FUNCTION=relay", "NATS_URL=nats://127.0.0.1:1"}},
		{"missing broker", "NATS_URL", []string{"FUNCTION=relay", "DATABASE_URL=postgres://127.0.0.1:1/x"}},
		{"missing keys", "IDENTITY_VERIFY_KEYS", []string{"FUNCTION=grant", "DATABASE_URL=postgres://127.0.0.1:1/x"}},
		{"missing address of the others", "FUNCTION_URL", []string{"FUNCTION=gateway", "OIDC_ISSUER=http://127.0.0.1:1", "IDENTITY_SIGNING_KEY=x"}},
		{"broken database", "the database URL cannot be read", []string{"FUNCTION=grant", "DATABASE_URL=postgres://%zz", "IDENTITY_VERIFY_KEYS=" + keys}},
		{"broken keys", "IDENTITY_VERIFY_KEYS is not a JWK Set", []string{"FUNCTION=grant", "DATABASE_URL=postgres://127.0.0.1:1/x", "IDENTITY_VERIFY_KEYS=x"}},
		{"broken duration", "LEASE_DURATION", []string{"FUNCTION=grant", "LEASE_DURATION=soon"}},
		{"out of range", "LEASE_BATCH must be 1 to 500", []string{"FUNCTION=grant", "LEASE_BATCH=501"}},
		{"all together, nothing set", "needs", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			command := exec.CommandContext(ctx, binary)
			command.Env = c.environment
			var stderr bytes.Buffer
			command.Stderr = &stderr
			err := command.Run()
			if err == nil || ctx.Err() != nil {
				t.Fatalf("it did not end with an error: %v", err)
			}
			line := strings.TrimSuffix(stderr.String(), "\n")
			if strings.Contains(line, "\n") || !strings.HasPrefix(line, "miniserver: ") || !strings.Contains(line, c.says) {
				t.Fatalf("it printed %q, want one line with %q", line, c.says)
			}
		})
	}
}

// process is infra/miniserver with FUNCTION=relay, ready.
type process struct {
	*program.Program
	url     string
	command *exec.Cmd
}

func startRelay(t *testing.T, environment ...string) *process {
	t.Helper()
	port, err := proc.FreePort(0)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{
		url:     "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		command: exec.Command(miniserver(t)),
	}
	p.command.Env = append([]string{
		"FUNCTION=relay", "PORT=" + strconv.Itoa(port),
		"DATABASE_URL=" + kit.Database(t), "NATS_URL=" + kit.NATS(t).URL(),
	}, environment...)
	p.Program = program.Start(t, p.command)
	kit.Eventually(t, "ready", func() bool {
		response, err := http.Get(p.url + "/health/readiness")
		if err == nil {
			_ = response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusOK
	})
	return p
}

// terminate sends SIGTERM and waits for a clean end.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	p.Terminate()
	if err := p.Wait(time.Minute); err != nil {
		t.Fatalf("after SIGTERM: %v", err)
	}
}

// With FUNCTION=relay a process is ready when its stores have answered, takes ticks from
// outside, and exits cleanly on SIGTERM.
func TestOneFunctionAlone(t *testing.T) {
	t.Parallel()
	p := startRelay(t)
	response, err := http.Post(p.url+"/tick", "", nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("tick: %v %v, want 200", response, err)
	}
	_ = response.Body.Close()
	if out, err := p.probe(); err != nil || len(out) > 0 {
		t.Errorf("ready: %v %s, want success without output", err, out)
	}
	p.terminate(t)
	out, err := p.probe()
	var status *exec.ExitError
	if line := strings.TrimSuffix(string(out), "\n"); !errors.As(err, &status) || status.ExitCode() != 1 ||
		!strings.HasPrefix(line, "miniserver: not ready: ") || strings.Contains(line, "\n") {
		t.Errorf("ready, without a server: %v %s, want status 1 and one line", err, out)
	}
}

// probe runs miniserver ready, as a container's health check does.
func (p *process) probe() ([]byte, error) {
	probe := exec.Command(p.command.Path, "ready")
	probe.Env = p.command.Env
	return probe.CombinedOutput()
}

// A request may begin at the moment of SIGTERM: it has until its function's timeout.
func TestGraceOutlastsAnswers(t *testing.T) {
	t.Parallel()
	s, err := settings.LoadFrom(map[string]string{})
	kit.Must(t, err)
	for _, f := range functions.All {
		ticked, streams := f.Schedule > 0, f.Timeout > time.Minute // which end themselves
		if !ticked && !streams && f.Timeout >= s.ShutdownGrace {
			t.Errorf("%s may take %s to answer, and SHUTDOWN_GRACE is %s", f.Name, f.Timeout, s.ShutdownGrace)
		}
	}
}

// SIGTERM during a tick ends its claiming, and its caller still gets an answer.
func TestSIGTERMDuringATick(t *testing.T) {
	t.Parallel()
	p := startRelay(t, "TICK_LINGER=15s", "TICK_BUDGET=15s")
	answered := make(chan error, 1)
	go func() {
		response, err := http.Post(p.url+"/tick", "", nil)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK {
				err = fmt.Errorf("answered %s", response.Status)
			}
		}
		answered <- err
	}()
	kit.Pause(300 * time.Millisecond) // the tick lingers by now; less would only test less
	began := time.Now()
	p.terminate(t)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it ended after %s, want at most 5s", took)
	}
}
