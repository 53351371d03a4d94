package conformance

import (
	"errors"
	"os/exec"
	"slices"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit/program"
)

// startProgram starts a program with this environment and no other.
func startProgram(t testing.TB, path string, environment map[string]string, arguments ...string) *program.Program {
	t.Helper()
	command := exec.Command(path, arguments...)
	command.Env = []string{} // nil would inherit the test's
	for name, value := range environment {
		command.Env = append(command.Env, name+"="+value)
	}
	slices.Sort(command.Env)
	// On this thread: it may be in a network namespace.
	return program.StartHere(t, command)
}

// refused runs a program that must refuse its environment, until it ends.
func refused(t testing.TB, path string, environment map[string]string, arguments ...string) (status int, printed string) {
	t.Helper()
	p := startProgram(t, path, environment, arguments...)
	var exit *exec.ExitError
	switch err := p.Wait(startWithin); {
	case err == nil:
		return 0, p.Printed()
	case errors.As(err, &exit):
		return exit.ExitCode(), p.Printed()
	default:
		t.Fatalf("the program did not end: %v: %s", err, p.Printed())
		return 0, ""
	}
}
