package dev

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testWriter passes progress on to the test's log.
type testWriter struct{ *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func TestUnpackedServersRun(t *testing.T) {
	t.Parallel()
	deps := t.TempDir()
	t.Cleanup(func() { Remove(deps) })
	// Package lists of our own: the longest way.
	f := finder{progress: testWriter{t}, ignoreSystem: true, ignoreLists: true}
	home, err := func() (string, error) {
		f.account, _ = serverAccount()
		return f.home(deps)
	}()
	if err != nil {
		t.Fatal(err)
	}
	interrupted := filepath.Join(home, unpackPrefix+"1", unpackedRedis)
	if err := os.MkdirAll(interrupted, privateDirMode); err != nil {
		t.Fatal(err)
	}
	// Two at once: one works, the other waits for it.
	var others Binaries
	done := make(chan error)
	go func() {
		other := finder{progress: io.Discard, ignoreSystem: true, ignoreLists: true}
		var err error
		others, err = other.ensure(testContext(t), deps)
		done <- err
	}()
	b, err := f.ensure(testContext(t), deps)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || others != b {
		t.Errorf("the other got %+v, %v", others, err)
	}
	if !strings.HasPrefix(b.PostgresDir, home) || !strings.HasPrefix(b.RedisServer, home) {
		t.Errorf("not unpacked: %+v", b)
	}
	left, _ := filepath.Glob(filepath.Join(home, unpackPrefix+"*"))
	if left != nil {
		t.Errorf("left behind: %v", left)
	}
	if err := serveOnce(testContext(t), serverDir(t), b); err != nil {
		t.Error(err)
	}
	began := time.Now()
	if again, err := f.ensure(testContext(t), deps); err != nil || again != b {
		t.Errorf("second time: %+v, %v", again, err)
	}
	if took := time.Since(began); took > 50*time.Millisecond {
		t.Errorf("took %s with everything there", took)
	}
}

func TestOrdinaryUserUnpacksAndRuns(t *testing.T) {
	t.Parallel()
	dir, program := t.TempDir(), os.Args[0]
	cmd := helper(t, "unpack and serve", dir, Binaries{})
	if os.Geteuid() == 0 { // otherwise we are an ordinary user already
		const nobody = 65534
		dir, err := os.MkdirTemp(outsideParent, "devserver-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, "test")
		if out, err := exec.Command("install", "-m", "755", program, copied).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		cmd.Path, cmd.Dir = copied, dir
		cmd.Env = append(cmd.Env, helperDir+"="+dir, "HOME=/nonexistent", "TMPDIR="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.Output()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

func TestErrorWithoutAptSaysWhatToDo(t *testing.T) {
	t.Parallel()
	deps := t.TempDir()
	t.Cleanup(func() { Remove(deps) })
	cmd := helper(t, "unpack", deps, Binaries{})
	cmd.Env = append(cmd.Env, "PATH=/nonexistent")
	out, err := cmd.Output()
	if err == nil || !strings.Contains(string(out), "apt-get") || !strings.Contains(string(out), "DATABASE_URL") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestEnsureStopsWithItsContext(t *testing.T) {
	t.Parallel()
	deps := t.TempDir()
	t.Cleanup(func() { Remove(deps) })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	f := finder{progress: io.Discard, ignoreSystem: true}
	began := time.Now()
	if _, err := f.ensure(ctx, deps); err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

func TestLibrariesIn(t *testing.T) {
	t.Parallel()
	const simulation = `Reading package lists...
Inst libc6 [2.36-9] (2.36-10 Debian:12 [amd64])
Inst libllvm14 (1:14.0.6-12 Debian:12 [amd64])
Inst libpq5 [15.1] (15.2 Debian:12 [amd64]) []
Inst libjson-perl (4.1-1 Debian:12 [all])
Inst ssl-cert (1.1 Debian:12 [all])
Inst liblzf1 (3.6-3 Debian:12 [amd64])
Conf liblzf1 (3.6-3 Debian:12 [amd64])
`
	if got := librariesIn(simulation); !slices.Equal(got, []string{"libpq5", "liblzf1"}) {
		t.Errorf("got %v", got)
	}
}
