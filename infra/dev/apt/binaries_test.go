package apt_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/postgres"
	"github.com/miniserversystem/miniserver/infra/dev/redis"
	"github.com/miniserversystem/miniserver/infra/dev/servertest"
)

func TestMain(m *testing.M) {
	os.Exit(servertest.Main(m, func(mode, dir string) error {
		ctx, deps := context.Background(), dir
		if mode == "unpack and serve" {
			deps = filepath.Join(dir, "deps")
		}
		b, err := apt.EnsureAnew(ctx, deps, os.Stdout, false)
		if err != nil || mode == "unpack" {
			return err
		}
		return serveOnce(ctx, dir, b)
	}))
}

// serveOnce starts both servers, whose readiness checks use them, and stops them.
func serveOnce(ctx context.Context, dir string, b apt.Binaries) error {
	p, err := postgres.Start(ctx, postgres.Options{Dir: dir, Binaries: b})
	if err != nil {
		return err
	}
	r, err := redis.Start(ctx, redis.Options{Dir: dir, Binaries: b})
	if err != nil {
		return errors.Join(err, p.Stop())
	}
	return errors.Join(r.Stop(), p.Stop())
}

// testWriter passes progress on to the test's log.
type testWriter struct{ *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func TestUnpackedServersRun(t *testing.T) {
	t.Parallel()
	deps := t.TempDir()
	t.Cleanup(func() { home.Remove(deps) })
	// Package lists of our own: the longest way.
	ensure := func(progress io.Writer) (apt.Binaries, error) {
		return apt.EnsureAnew(servertest.Context(t), deps, progress, true)
	}
	account, err := home.ServerAccount()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := home.Programs(deps, account)
	if err != nil {
		t.Fatal(err)
	}
	interrupted := filepath.Join(programs, apt.UnpackPrefix+"1", apt.UnpackedRedis)
	if err := os.MkdirAll(interrupted, home.PrivateDir); err != nil {
		t.Fatal(err)
	}
	// Two at once: one works, the other waits for it.
	var others apt.Binaries
	done := make(chan error)
	go func() {
		var err error
		others, err = ensure(io.Discard)
		done <- err
	}()
	b, err := ensure(testWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || others != b {
		t.Errorf("the call that waited returned %+v, %v; want the same as the other", others, err)
	}
	if !strings.HasPrefix(b.PostgresDir, programs) || !strings.HasPrefix(b.RedisServer, programs) {
		t.Errorf("not unpacked: %+v", b)
	}
	left, _ := filepath.Glob(filepath.Join(programs, apt.UnpackPrefix+"*"))
	if left != nil {
		t.Errorf("left behind: %v", left)
	}
	if err := serveOnce(servertest.Context(t), servertest.Dir(t), b); err != nil {
		t.Error(err)
	}
	began := time.Now()
	if again, err := ensure(io.Discard); err != nil || again != b {
		t.Errorf("second time: %+v, %v", again, err)
	}
	if took := time.Since(began); took > 50*time.Millisecond {
		t.Errorf("took %s with nothing missing, want at most 50ms", took)
	}
}

func TestOrdinaryUserUnpacksAndRuns(t *testing.T) {
	t.Parallel()
	dir, program := t.TempDir(), os.Args[0]
	cmd := servertest.Helper(t, "unpack and serve", dir)
	if os.Geteuid() == 0 { // otherwise we are an ordinary user already
		const nobody = 65534
		dir, err := os.MkdirTemp("/var/tmp", "miniserver-test-")
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
		cmd.Env = append(cmd.Env, servertest.HelperDir+"="+dir, "HOME=/nonexistent", "TMPDIR="+dir)
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
	t.Cleanup(func() { home.Remove(deps) })
	cmd := servertest.Helper(t, "unpack", deps)
	cmd.Env = append(cmd.Env, "PATH=/nonexistent")
	out, err := cmd.Output()
	if err == nil || !strings.Contains(string(out), "apt-get") || !strings.Contains(string(out), "DATABASE_URL") {
		t.Errorf("%v: %s; want an error that names apt-get and DATABASE_URL", err, out)
	}
}

func TestEnsureStopsWithItsContext(t *testing.T) {
	t.Parallel()
	deps := t.TempDir()
	t.Cleanup(func() { home.Remove(deps) })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := apt.EnsureAnew(ctx, deps, io.Discard, false); err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("after %s: %v; want an error within 5s", time.Since(began), err)
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
	if got := apt.LibrariesIn(simulation); !slices.Equal(got, []string{"libpq5", "liblzf1"}) {
		t.Errorf("got %v, want libpq5 and liblzf1", got)
	}
}
