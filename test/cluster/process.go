package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// Process is one program that runs until the test ends.
type Process struct {
	*proc.Child
	name, log string
}

// Run starts a program with this environment and no other; what it prints goes to
// name.log in dir, whose end a test that fails shows.
func Run(t testing.TB, dir, name string, environment []string, program string, arguments ...string) *Process {
	t.Helper()
	p := &Process{name: name, log: filepath.Join(dir, name+".log")}
	file, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	command := exec.Command(program, arguments...)
	command.Env, command.Dir = environment, dir
	command.Stdout, command.Stderr = file, file
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.Child, err = proc.Start(command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s printed last:\n%s", name, p.Tail(5))
		}
		// Nothing of it is kept, and Knative's take most of a minute to end in order.
		_ = p.Process.Kill() // fails only when it is gone
		<-p.Ended
	})
	return p
}

// Tail is the end of what it printed.
func (p *Process) Tail(lines int) string {
	printed, _ := os.ReadFile(p.log)
	all := strings.Split(strings.TrimSpace(string(printed)), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		all[i] = line[:min(len(line), 400)]
	}
	return strings.Join(all, "\n")
}

// Until polls until check returns nil; the test ends when that takes longer than
// patience, or when one of the processes ends.
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
		time.Sleep(100 * time.Millisecond)
	}
}

// freePort is one below those that the system gives to clients.
func freePort(t testing.TB) string {
	t.Helper()
	port, err := proc.FreePort(0)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(port)
}
