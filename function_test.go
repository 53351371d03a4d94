package function_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/devserver"
	"github.com/miniserversystem/miniserver/pkg/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// serve builds infra/serve, which runs the root package as a container does.
func serve(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "serve")
	build := exec.Command("go", "build", "-o", binary, "./infra/serve")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// A process that cannot run says why in one line and ends with a status.
func TestOneClearLine(t *testing.T) {
	t.Parallel()
	binary := serve(t)
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
				t.Fatalf("it said %q, want one line with %q", line, c.says)
			}
		})
	}
}

// FUNCTION=relay is a process of its own: not ready while its stores are away,
// ready when they have answered, and gone cleanly on SIGTERM.
func TestOneFunctionAlone(t *testing.T) {
	t.Parallel()
	binary := serve(t)
	port, err := devserver.FreePort(0)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(binary)
	command.Env = []string{
		"FUNCTION=relay", "PORT=" + strconv.Itoa(port),
		"DATABASE_URL=" + testkit.Database(t), "NATS_URL=" + testkit.NATS(t).URL(),
	}
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = command.Process.Kill() }()
	url := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	deadline := time.Now().Add(15 * time.Second)
	for {
		response, err := http.Get(url + "/health/readiness")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("never ready: %v\n%s", err, out.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
	response, err := http.Post(url+"/tick", "", nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("tick: %v %v", response, err)
	}
	_ = response.Body.Close()
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Fatalf("after SIGTERM: %v\n%s", err, out.String())
	}
}
