// Package program builds and runs the programs that tests are about. Each runs until
// its test ends, with what it prints in a file.
package program

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

// shownBytes is how much of a log a test that has failed shows.
const shownBytes = 8000

// Program is a process that was started.
type Program struct {
	*proc.Child
	log string
}

// Start starts a command. It is killed when t ends, with what it started, and its log
// is shown when t has failed.
func Start(t testing.TB, command *exec.Cmd) *Program {
	t.Helper()
	return run(t, command, proc.Start)
}

// StartHere is Start on the calling thread, which may be in a network of its own.
func StartHere(t testing.TB, command *exec.Cmd) *Program {
	t.Helper()
	return run(t, command, proc.StartHere)
}

func run(t testing.TB, command *exec.Cmd, start func(*exec.Cmd) (*proc.Child, error)) *Program {
	t.Helper()
	p := &Program{log: filepath.Join(t.TempDir(), "log")}
	// A file: what is written to it is there at once.
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.Child, err = start(command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) // fails when all have ended
		<-p.Ended
		if t.Failed() {
			printed := p.Printed()
			t.Logf("log of %s:\n%s", strings.Join(command.Args, " "), printed[max(0, len(printed)-shownBytes):])
		}
	})
	return p
}

// Printed is what it has printed.
func (p *Program) Printed() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Terminate sends SIGTERM.
func (p *Program) Terminate() { _ = p.Process.Signal(syscall.SIGTERM) }

// Wait returns an error unless the program ends within a time, with status 0.
func (p *Program) Wait(within time.Duration) error {
	select {
	case <-p.Ended:
		return p.Err()
	case <-time.After(within):
		return fmt.Errorf("it has not ended within %s", within)
	}
}
