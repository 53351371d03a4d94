package kit_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/pgbouncer"
	"github.com/miniserversystem/miniserver/infra/dev/postgres"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/infra/dev/rabbitmq"
	"github.com/miniserversystem/miniserver/infra/dev/redis"
	"github.com/miniserversystem/miniserver/test/kit"
)

const (
	// servingDir makes this test binary a process that starts servers in this folder,
	// until it is killed.
	servingDir = "TESTKIT_SERVING_DIR"
	goneWithin = 10 * time.Second
)

// serveEverything starts every server that tests can use, reports that, and never
// returns.
func serveEverything(dir string) error {
	ctx := context.Background()
	root, err := kit.Root()
	if err != nil {
		return err
	}
	programs := filepath.Join(root, ".local", "deps")
	binaries, err := apt.Ensure(ctx, programs, os.Stderr)
	if err != nil {
		return err
	}
	postgres, err := postgres.Start(ctx, postgres.Options{Dir: filepath.Join(dir, "postgres"), Binaries: binaries})
	if err != nil {
		return err
	}
	if _, err := redis.Start(ctx, redis.Options{Dir: filepath.Join(dir, "redis"), Binaries: binaries}); err != nil {
		return err
	}
	if _, err := pgbouncer.Start(ctx, pgbouncer.Options{
		Dir: filepath.Join(dir, "pgbouncer"), Programs: programs, Progress: os.Stderr, Server: postgres.URL(), PoolSize: 1,
	}); err != nil {
		return err
	}
	if _, err := rabbitmq.Start(ctx, rabbitmq.Options{
		Dir: filepath.Join(dir, "rabbitmq"), Programs: programs, Progress: os.Stderr,
	}); err != nil {
		return err
	}
	if _, err := proc.Start(exec.Command("sleep", "1000")); err != nil {
		return err
	}
	runtime.GC() // unreferenced servers must keep running too
	fmt.Println("started")
	select {}
}

// A killed test binary leaves none of its servers running.
func TestNothingOutlivesAKilledTest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Cleanup(func() {
		if err := home.Remove(filepath.Join(dir, "postgres")); err != nil {
			t.Error(err)
		}
	})
	serving := exec.Command(os.Args[0])
	serving.Env = append(os.Environ(), servingDir+"="+dir)
	serving.Stderr = os.Stderr
	out, err := serving.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	child, err := proc.Start(serving)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("started\n"))); err != nil {
		t.Fatalf("the servers were not started: %v", err)
	}
	servers := descendants(child.Process.Pid)
	for _, name := range []string{"sh", "postgres", "redis-server", "pgbouncer", "epmd", "beam.smp", "sleep"} {
		if !slices.Contains(slices.Collect(maps.Values(servers)), name) {
			t.Errorf("no %s was started, only: %v", name, servers)
		}
	}
	if err := child.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-child.Ended
	for deadline := time.Now().Add(goneWithin); ; kit.Pause(10 * time.Millisecond) {
		for pid := range servers {
			if name, _ := nameAndParent(pid); name != servers[pid] {
				delete(servers, pid)
			}
		}
		if len(servers) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for pid := range servers {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			t.Fatalf("%s after their process was killed, these are still running: %v", goneWithin, servers)
		}
	}
}

// descendants returns the processes below pid: names by pids.
func descendants(pid int) map[int]string {
	names, parents := map[int]string{}, map[int]int{}
	files, _ := filepath.Glob("/proc/[0-9]*")
	for _, file := range files {
		if p, err := strconv.Atoi(filepath.Base(file)); err == nil {
			names[p], parents[p] = nameAndParent(p)
		}
	}
	found := map[int]string{}
	for p := range parents {
		for up := parents[p]; up > 1; up = parents[up] {
			if up == pid {
				found[p] = names[p]
			}
		}
	}
	return found
}

// nameAndParent returns a process's, "" when it is gone or a zombie.
func nameAndParent(pid int) (name string, parent int) {
	stat, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	before, after, _ := strings.Cut(string(stat), ") ")
	_, name, _ = strings.Cut(before, "(")
	fields := strings.Fields(after)
	if len(fields) < 2 || fields[0] == "Z" || fields[0] == "X" {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return name, parent
}
