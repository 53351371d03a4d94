package dev

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/miniserversystem/miniserver/pkg/rights"
)

const (
	redisName    = "redis"
	redisProgram = "redis-server"

	redisReadyTimeout = 30 * time.Second // reading a large log of writes
	redisTermWait     = 10 * time.Second
	redisHungWait     = 2 * time.Second
	redisPingTimeout  = 2 * time.Second
)

// redisStop lets Redis write what it has; redisHungStop is for one that does
// not answer anyway.
var (
	redisStop     = []stopStep{{syscall.SIGTERM, redisTermWait}}
	redisHungStop = []stopStep{{syscall.SIGTERM, redisHungWait}}
)

// RedisOptions say where and how to run Redis.
type RedisOptions struct {
	// Dir holds everything of the server and is created if missing.
	Dir string
	// Binaries come from [Ensure].
	Binaries Binaries
	// Cluster makes it a node of a Redis Cluster, which does not answer for keys until
	// the cluster is formed. The nodes of one share a Password.
	Cluster  bool
	Password string
	// Users may do what their rights say and no more, beside the one of [Redis.URL], who
	// may do everything. They have its password, and stay for starts without Users.
	Users map[string]rights.Rights
}

// Redis is a running Redis server.
type Redis struct {
	dir      string
	password string
	port     int
	cluster  bool
	busPort  int // of a cluster's node
	inUse    *os.File

	stopping sync.Mutex
	proc     *process // nil once stopped
}

// StartRedis returns a Redis server that answers. It keeps its data in an
// append-only file flushed every second. A Dir serves one process at a time: a
// second one gets [ErrInUse]. ctx bounds the start only; when it ends meanwhile,
// nothing is left running. Errors quote the server's log and say what to do.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	dir, err := ownDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	r := &Redis{dir: dir, cluster: o.Cluster, password: o.Password}
	if r.password == "" {
		r.password, err = password(dir)
	}
	if err == nil {
		r.inUse, err = tryLock(r.file(usersSuffix), os.O_CREATE)
	}
	if err == nil {
		if err = r.start(ctx, o); err != nil {
			r.inUse.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start Redis in %s: %w", dir, err)
	}
	return r, nil
}

// URL returns the connection string, password included.
func (r *Redis) URL() string { return r.URLAs("") }

// URLAs returns the connection string of one of the Users.
func (r *Redis) URLAs(user string) string {
	return fmt.Sprintf("redis://%s:%s@%s/0", user, r.password, hostPort(r.port))
}

// Ports are where the server listens, and where a cluster's node talks to the
// others (0 for one that is in none).
func (r *Redis) Ports() (port, bus int) { return r.port, r.busPort }

// Stop ends the server after it has written its data, and returns when its
// process is gone, within a minute at worst. Calling it again does nothing.
func (r *Redis) Stop() error {
	r.stopping.Lock()
	defer r.stopping.Unlock()
	if r.proc == nil {
		return nil
	}
	if err := r.proc.end(redisStop...); err != nil {
		return fmt.Errorf("stop Redis in %s: %w", r.dir, err)
	}
	r.proc = nil
	return r.inUse.Close()
}

func (r *Redis) file(suffix string) string { return filepath.Join(r.dir, redisName+suffix) }
