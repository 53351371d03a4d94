// Package program builds and runs programs under test. Each runs until its test ends, and
// prints to a file.
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

// shownBytes is how much of a program's log a failed test shows.
const shownBytes = 8000

// Program is a started process.
type Program struct {
	*proc.Child
	log string
}

// Start starts a command. It and its children are killed when t ends, and its log is
// shown if t failed.
func Start(t testing.TB, command *exec.Cmd) *Program {
	t.Helper()
	return run(t, command, proc.Start)
}

// StartHere is Start on the calling thread, which may be in a network namespace of its
// own.
func StartHere(t testing.TB, command *exec.Cmd) *Program {
	t.Helper()
	return run(t, command, proc.StartHere)
}

func run(t testing.TB, command *exec.Cmd, start func(*exec.Cmd) (*proc.Child, error)) *Program {
	t.Helper()
	p := &Program{log: filepath.Join(t.TempDir(), "log")}
	// A file: what is printed is readable at once.
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
		_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) // fails if all have ended
		<-p.Ended
		if t.Failed() {
			printed := p.Printed()
			t.Logf("log of %s:\n%s", strings.Join(command.Args, " "), printed[max(0, len(printed)-shownBytes):])
		}
	})
	return p
}

// Printed returns what the program has printed.
func (p *Program) Printed() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Terminate sends SIGTERM.
func (p *Program) Terminate() { _ = p.Process.Signal(syscall.SIGTERM) }

// Wait returns an error unless the program ends within this time with status 0.
func (p *Program) Wait(within time.Duration) error {
	select {
	case <-p.Ended:
		return p.Err()
	case <-time.After(within):
		return fmt.Errorf("it has not ended within %s", within)
	}
}
