package redis

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/infra/dev/servertest"
	"github.com/miniserversystem/miniserver/pkg/rights"
)

func TestRedisKeepsDataPasswordAndPort(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(servertest.Dir(t), `with "quotes" and spaces`)
	r := started(t, dir)
	url := r.URL()
	if err := client(t, r).Set(t.Context(), "kept", "7", 0).Err(); err != nil {
		t.Fatal(err)
	}
	servertest.Stop(t, r)
	if left := servertest.ProcessesOf(dir); left != nil {
		t.Fatalf("left running: %v", left)
	}
	servertest.Stop(t, r)
	r = started(t, dir)
	if r.URL() != url {
		t.Errorf("URL changed from %s to %s", url, r.URL())
	}
	if got, err := client(t, r).Get(t.Context(), "kept").Result(); err != nil || got != "7" {
		t.Errorf("kept = %s, %v", got, err)
	}
	servertest.Stop(t, r)
}

func TestRedisAsksForThePassword(t *testing.T) {
	t.Parallel()
	r := started(t, servertest.Dir(t))
	c := redis.NewClient(&redis.Options{Addr: proc.Address(r.port)})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("answered without a password")
	}
	if info, err := os.Stat(r.file(".conf")); err != nil || info.Mode().Perm() != home.PrivateFile {
		t.Errorf("configuration file: %v, %v", info, err)
	}
	servertest.Stop(t, r)
}

func TestLargeLogIsEmptied(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	servertest.Stop(t, started(t, dir))
	log := filepath.Join(dir, "redis.log")
	if err := os.Truncate(log, proc.LogLimitBytes+1); err != nil {
		t.Fatal(err)
	}
	servertest.Stop(t, started(t, dir))
	if info, err := os.Stat(log); err != nil || info.Size() == 0 || info.Size() > proc.LogLimitBytes {
		t.Errorf("log after start: %v, %v", info.Size(), err)
	}
}

// A process that is killed leaves no server behind.
func TestServerEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	by, pid, _ := servertest.Serving(t, "serve", dir)
	servertest.Kill(by)
	servertest.WantGone(t, pid)
	servertest.Stop(t, started(t, dir))
}

func TestRecycledPIDIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	r := started(t, dir)
	servertest.Stop(t, r)
	other := servertest.Sleeper(t, nil)
	if err := os.WriteFile(r.file(".pid"), []byte(strconv.Itoa(other)+"\n"), home.PrivateFile); err != nil {
		t.Fatal(err)
	}
	servertest.Stop(t, started(t, dir))
	if !servertest.Alive(other) {
		t.Error("killed another program")
	}
}

func TestTakenPortIsAvoided(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	r := started(t, dir)
	port := r.port
	servertest.Stop(t, r)
	l, err := net.Listen("tcp", proc.Address(port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// Also when only bind finds the port taken, not FreePort.
	if err := r.run(servertest.Context(t), Options{Binaries: servertest.Binaries(t)}); !errors.Is(err, proc.ErrPortTaken) {
		t.Errorf("on a taken port: %v, want ErrPortTaken", err)
	}
	r = started(t, dir)
	if r.port == port {
		t.Error("started on a taken port")
	}
	servertest.Stop(t, r)
}

func TestUserReachesItsKeysOnly(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	users := map[string]rights.Rights{"queues": {Keys: []string{"mm:*"}, Reads: []string{"session:*"}}}
	r, err := Start(servertest.Context(t), Options{Dir: dir, Binaries: servertest.Binaries(t), Users: users})
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		options, err := redis.ParseURL(r.URLAs("queues"))
		if err != nil {
			t.Fatal(err)
		}
		c := redis.NewClient(options)
		defer c.Close()
		ctx := servertest.Context(t)
		script := redis.NewScript(`return redis.call('SET', KEYS[1], 1)`)
		for _, may := range []error{
			c.Ping(ctx).Err(), c.Set(ctx, "mm:a", 1, time.Minute).Err(), c.ZAdd(ctx, "mm:z", redis.Z{}).Err(), c.Time(ctx).Err(),
			script.Run(ctx, c, []string{"mm:b"}).Err(), c.Exists(ctx, "session:a").Err(), c.XAdd(ctx, &redis.XAddArgs{Stream: "mm:s", Values: []string{"a", "b"}}).Err(),
		} {
			if may != nil {
				t.Errorf("the user was refused what it has a right to: %v", may)
			}
		}
		for what, err := range map[string]error{
			"another's key": c.Get(ctx, "rate:a").Err(), "writing what it reads": c.Set(ctx, "session:a", 1, 0).Err(),
			"another's key in a script": script.Run(ctx, c, []string{"rate:a"}).Err(),
			"another's key, undeclared": c.Eval(ctx, `return redis.call('SET', 'rate:a', 1)`, nil).Err(),
			"FLUSHALL":                  c.FlushAll(ctx).Err(), "FLUSHDB": c.FlushDB(ctx).Err(), "KEYS": c.Keys(ctx, "*").Err(), "SCAN": c.Scan(ctx, 0, "*", 1).Err(),
			"CONFIG": c.ConfigGet(ctx, "*").Err(), "ACL": c.Do(ctx, "ACL", "LIST").Err(), "SHUTDOWN": c.Do(ctx, "SHUTDOWN", "NOSAVE").Err(),
			"SCRIPT FLUSH": c.ScriptFlush(ctx).Err(), "CLIENT KILL": c.ClientKill(ctx, "127.0.0.1:1").Err(), "MONITOR": c.Do(ctx, "MONITOR").Err(),
			"PUBLISH": c.Publish(ctx, "x", "y").Err(), "FUNCTION": c.Do(ctx, "FUNCTION", "FLUSH").Err(), "RESTORE": c.Do(ctx, "RESTORE", "mm:r", 0, "x").Err(),
		} {
			if err == nil || !strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "permission") && !strings.Contains(err.Error(), "can't access") {
				t.Errorf("%s: %v, want it refused", what, err)
			}
		}
	}
	check()
	servertest.Stop(t, r)
	r = started(t, dir) // its users stay
	check()
}
