package dev

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
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

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// Environment of a test binary that runs as another process than the tests.
const (
	helperMode     = "DEVSERVER_TEST_HELPER"
	helperDir      = "DEVSERVER_TEST_DIR"
	helperBinaries = "DEVSERVER_TEST_BINARIES"

	testTimeout = 2 * time.Minute
)

var depsDir string

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperMode); mode != "" {
		if err := help(mode, os.Getenv(helperDir)); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "devserver-deps-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	depsDir = dir
	code := m.Run()
	leaked := goleak.Find()
	if err := errors.Join(leaked, Remove(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// help is what the other process does.
func help(mode, dir string) error {
	ctx := context.Background()
	var b Binaries
	if s := os.Getenv(helperBinaries); s != "" {
		if err := json.Unmarshal([]byte(s), &b); err != nil {
			return err
		}
	}
	switch mode {
	case "share": // until killed
		p, err := StartPostgres(ctx, PostgresOptions{Dir: dir, Binaries: b})
		if err != nil {
			return err
		}
		fmt.Printf("%d 0 %s\n", p.proc.handle.Pid, p.URL())
		select {}
	case "serve": // until killed
		p, err := StartPostgres(ctx, PostgresOptions{Dir: dir, Binaries: b})
		if err != nil {
			return err
		}
		r, err := StartRedis(ctx, RedisOptions{Dir: dir, Binaries: b})
		if err != nil {
			return err
		}
		fmt.Printf("%d %d %s\n", p.proc.handle.Pid, r.proc.handle.Pid, p.URL())
		select {}
	case "unpack":
		f := finder{progress: os.Stdout, ignoreSystem: true}
		_, err := f.ensure(ctx, dir)
		return err
	case "unpack and serve":
		f := finder{progress: os.Stdout, ignoreSystem: true}
		b, err := f.ensure(ctx, filepath.Join(dir, "deps"))
		if err != nil {
			return err
		}
		return serveOnce(ctx, dir, b)
	}
	return errors.New("no such mode")
}

// serveOnce starts both servers, uses them and stops them.
func serveOnce(ctx context.Context, dir string, b Binaries) error {
	p, err := StartPostgres(ctx, PostgresOptions{Dir: dir, Binaries: b})
	if err != nil {
		return err
	}
	r, err := StartRedis(ctx, RedisOptions{Dir: dir, Binaries: b})
	if err != nil {
		return err
	}
	return errors.Join(p.ping(ctx), r.ping(ctx), r.Stop(), p.Stop())
}

// system returns the programs all tests share, unpacked once if need be.
var system = sync.OnceValues(func() (Binaries, error) {
	return Ensure(context.Background(), depsDir, os.Stdout)
})

func binaries(t *testing.T) Binaries {
	t.Helper()
	b, err := system()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// serverDir returns a directory that is removed with all it caused.
func serverDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "server")
	t.Cleanup(func() {
		if err := Remove(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
		for _, pid := range processesOf(dir) {
			t.Errorf("process %d still runs", pid)
		}
	})
	return dir
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

func startPostgres(t *testing.T, dir string) *Postgres {
	t.Helper()
	began := time.Now()
	p, err := StartPostgres(testContext(t), PostgresOptions{Dir: dir, Binaries: binaries(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("PostgreSQL ready after %d ms", time.Since(began).Milliseconds())
	t.Cleanup(func() { p.Stop() })
	return p
}

func startRedis(t *testing.T, dir string) *Redis {
	t.Helper()
	began := time.Now()
	r, err := StartRedis(testContext(t), RedisOptions{Dir: dir, Binaries: binaries(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Redis ready after %d ms", time.Since(began).Milliseconds())
	t.Cleanup(func() { r.Stop() })
	return r
}

func stop(t *testing.T, s interface{ Stop() error }) {
	t.Helper()
	began := time.Now()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%T stopped after %d ms", s, time.Since(began).Milliseconds())
}

// query runs a statement that returns one value.
func query(t *testing.T, url, statement string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var s string
	if err := conn.QueryRow(t.Context(), statement).Scan(&s); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return s
}

func redisClient(t *testing.T, r *Redis) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// processesOf lists the processes with dir, or the place of its data, on their
// command line.
func processesOf(dir string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err == nil && (bytes.Contains(b, []byte(dir)) || bytes.Contains(b, []byte(outsideHome(dir, "")))) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// helper runs this test binary as another process.
func helper(t *testing.T, mode, dir string, b Binaries) *exec.Cmd {
	t.Helper()
	encoded, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(testContext(t), os.Args[0])
	cmd.Env = append(os.Environ(), helperMode+"="+mode, helperDir+"="+dir, helperBinaries+"="+string(encoded))
	cmd.Stderr = os.Stderr
	return cmd
}

// serving starts servers on dir in another process, and returns it, their pids (0 for
// a Redis that there is not) and where Postgres is.
func serving(t *testing.T, mode, dir string) (by *exec.Cmd, postgresPID, redisPID int, url string) {
	t.Helper()
	by = helper(t, mode, dir, binaries(t))
	out, err := by.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := by.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(by) })
	line, _ := bufio.NewReader(out).ReadString('\n')
	if _, err := fmt.Sscan(line, &postgresPID, &redisPID, &url); err != nil {
		t.Fatalf("helper printed %q: %v", line, err)
	}
	return by, postgresPID, redisPID, url
}

// kill ends another process at once, as the kernel or a time limit would.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // fails only when it was killed before
	_ = cmd.Wait()
}

// wantGone waits until processes have ended.
func wantGone(t *testing.T, pids ...int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); slices.ContainsFunc(pids, alive); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			t.Fatalf("of the processes %d some live on: %d", pids, slices.DeleteFunc(pids, func(pid int) bool { return !alive(pid) }))
		}
	}
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil && !zombie(pid) }

func zombie(pid int) bool {
	b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	return strings.Contains(string(b), "State:\tZ")
}
