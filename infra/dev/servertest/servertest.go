// Package servertest is shared by the tests of the servers: directories that are cleaned
// up, and a second process that can be killed.
package servertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// Environment of a test binary that runs as the second process.
const (
	helperMode = "SERVERTEST_MODE"
	// HelperDir is where that process works.
	HelperDir = "SERVERTEST_DIR"

	patience = 2 * time.Minute
	// lastBreath is how long a killed process may take to go on a busy machine.
	lastBreath = 10 * time.Second
)

// Main runs a package's tests, or the work of the second process: help gets the mode and
// the directory that Helper was called with.
func Main(m *testing.M, help func(mode, dir string) error) int {
	if mode := os.Getenv(helperMode); mode != "" {
		if err := help(mode, os.Getenv(HelperDir)); err != nil {
			fmt.Println("error:", err)
			return 1
		}
		return 0
	}
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// Programs are the server programs that all tests share.
var Programs = sync.OnceValues(func() (apt.Binaries, error) {
	root, err := home.Repository()
	if err != nil {
		return apt.Binaries{}, err
	}
	return apt.Ensure(context.Background(), filepath.Join(root, ".local", "deps"), os.Stderr)
})

// Binaries is Programs for a test.
func Binaries(t *testing.T) apt.Binaries {
	t.Helper()
	b, err := Programs()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Dir returns a directory that is removed with all that servers on it left.
func Dir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "server")
	t.Cleanup(func() {
		if err := home.Remove(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), lastBreath)
		defer cancel()
		for len(ProcessesOf(dir)) > 0 && proc.Sleep(ctx, time.Millisecond) == nil {
			continue
		}
		for _, pid := range ProcessesOf(dir) {
			t.Errorf("process %d still runs", pid)
		}
	})
	return dir
}

// Context returns a context that ends before the test's time is up.
func Context(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// Started returns a server that Start returned, and stops it when the test ends.
func Started[S interface{ Stop() error }](t *testing.T, server S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	return server
}

// Stop stops a server and logs how long that took.
func Stop(t *testing.T, s interface{ Stop() error }) {
	t.Helper()
	began := time.Now()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%T stopped after %d ms", s, time.Since(began).Milliseconds())
}

// ProcessesOf lists the processes with dir, or the place of its data, on their
// command line.
func ProcessesOf(dir string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err == nil && (bytes.Contains(b, []byte(dir)) || bytes.Contains(b, []byte(home.Outside(dir)))) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// Helper returns a command that runs this test binary as another process.
func Helper(t *testing.T, mode, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(Context(t), os.Args[0])
	cmd.Env = append(os.Environ(), helperMode+"="+mode, HelperDir+"="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// Serve is what a Helper does for Serving: it prints what Serving reads, and blocks until
// it is killed.
func Serve(pid int, url string) {
	fmt.Printf("%d %s\n", pid, url)
	select {}
}

// Serving starts a server on dir in another process, and returns that, and the
// server's pid and address.
func Serving(t *testing.T, mode, dir string) (by *exec.Cmd, pid int, url string) {
	t.Helper()
	Binaries(t) // before Helper's timeout starts
	by = Helper(t, mode, dir)
	out, err := by.StdoutPipe()
	if err = errors.Join(err, by.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Kill(by) })
	line, _ := bufio.NewReader(out).ReadString('\n')
	if _, err := fmt.Sscan(line, &pid, &url); err != nil {
		t.Fatalf("helper printed %q: %v", line, err)
	}
	return by, pid, url
}

// Kill ends another process at once, as the kernel or a time limit would.
func Kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // fails only when it was killed before
	_ = cmd.Wait()
}

// WantGone waits until processes have ended.
func WantGone(t *testing.T, pids ...int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); slices.ContainsFunc(pids, Alive); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("of the processes %d some still run: %d", pids, slices.DeleteFunc(pids, func(pid int) bool { return !Alive(pid) }))
		}
	}
}

// Alive reports whether a process has not ended.
func Alive(pid int) bool {
	status, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	return syscall.Kill(pid, 0) == nil && !strings.Contains(string(status), "State:\tZ")
}

// Sleeper starts an unrelated program that does nothing.
func Sleeper(t *testing.T, as *syscall.Credential) (pid int) {
	t.Helper()
	other := exec.Command("sleep", "100")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Kill(other) })
	return other.Process.Pid
}
