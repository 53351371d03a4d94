package cluster

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

// Process is one program that runs until the test ends.
type Process struct {
	*program.Program
	name string
}

// Run starts a program in dir with this environment and no other.
func Run(t testing.TB, dir, name string, environment []string, path string, arguments ...string) *Process {
	t.Helper()
	command := exec.Command(path, arguments...)
	command.Env, command.Dir = environment, dir
	return &Process{program.Start(t, command), name}
}

// Tail returns the last lines that it printed.
func (p *Process) Tail(lines int) string {
	all := strings.Split(strings.TrimSpace(p.Printed()), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		all[i] = line[:min(len(line), 400)]
	}
	return strings.Join(all, "\n")
}

// Until polls until check returns nil; it fails the test after patience, or when one of
// the processes ends.
func Until(t testing.TB, what string, patience time.Duration, check func() error, processes ...*Process) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		for _, p := range processes {
			select {
			case <-p.Ended:
				t.Fatalf("%s ended while waiting for %s:\n%s", p.name, what, p.Tail(15))
			default:
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s: %v", patience, what, err)
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // between two checks
	}
}

// freePort returns a free port below those that the system gives to clients.
func freePort(t testing.TB) string {
	t.Helper()
	port, err := proc.FreePort(0)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(port)
}
