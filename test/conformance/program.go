package conformance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// buildWithin bounds one go build, with nothing in its cache.
const buildWithin = 5 * time.Minute

// builds are the programs that were built, by folder and package.
var builds sync.Map

type build struct {
	once sync.Once
	path string
	err  error
}

// Build returns the path of a main package, built as an image has it, once for all
// tests of a process. dir is the root of the package's module.
func Build(t testing.TB, dir, main string) string {
	t.Helper()
	made, _ := builds.LoadOrStore(dir+" "+main, &build{})
	b := made.(*build)
	b.once.Do(func() {
		var out string
		if out, b.err = os.MkdirTemp("", "conformance-"); b.err != nil {
			return
		}
		b.path = filepath.Join(out, "program")
		command := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", b.path, main)
		command.Dir, command.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
		late := time.AfterFunc(buildWithin, func() { _ = command.Process.Kill() })
		defer late.Stop()
		if said, err := command.CombinedOutput(); err != nil {
			b.err = fmt.Errorf("go build %s: %w: %s", main, err, said)
		}
	})
	must(t, b.err)
	return b.path
}

// Clean removes what Build built. TestMain calls it last.
func Clean() {
	builds.Range(func(_, made any) bool {
		if path := made.(*build).path; path != "" {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		return true
	})
}

// Program is a process that was started.
type Program struct {
	*proc.Child
	log string
}

// StartProgram starts a program with this environment and no other. It is killed
// when t ends, and its log is shown when t has failed.
func StartProgram(t testing.TB, path string, environment map[string]string, arguments ...string) *Program {
	t.Helper()
	command, log := exec.Command(path, arguments...), filepath.Join(t.TempDir(), "log")
	// A file: what is written to it is there at once.
	out, err := os.Create(log)
	must(t, err)
	defer out.Close()
	command.Stdout, command.Stderr = out, out
	command.Env = []string{} // nil would be ours
	for name, value := range environment {
		command.Env = append(command.Env, name+"="+value)
	}
	slices.Sort(command.Env)
	// On this thread: it may be in a network of its own.
	child, err := proc.StartHere(command)
	must(t, err)
	p := &Program{child, log}
	t.Cleanup(func() {
		_ = p.Process.Kill() // fails when it has ended
		<-p.Ended
		if t.Failed() {
			t.Logf("log of %s:\n%s", strings.Join(append([]string{filepath.Base(path), environment["FUNCTION"]}, arguments...), " "), p.logged())
		}
	})
	return p
}

// logged is the end of what it printed.
func (p *Program) logged() string {
	const most = 8000
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
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

// Refused runs a program that must refuse its environment, until it ends.
func Refused(t testing.TB, path string, environment map[string]string, arguments ...string) (status int, printed string) {
	t.Helper()
	p := StartProgram(t, path, environment, arguments...)
	var exit *exec.ExitError
	switch err := p.Wait(startWithin); {
	case err == nil:
		return 0, p.logged()
	case errors.As(err, &exit):
		return exit.ExitCode(), p.logged()
	default:
		t.Fatalf("%v: %s", err, p.logged())
		return 0, ""
	}
}
