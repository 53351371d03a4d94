// Package redis starts a Redis server.
package redis

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/pkg/rights"
)

const (
	name    = "redis" // of its files
	program = "redis-server"

	readyTimeout = 30 * time.Second // reading a large log of writes
	termWait     = 10 * time.Second
	hungWait     = 2 * time.Second
	pingTimeout  = 2 * time.Second
)

// inOrder lets Redis write its data; hung is for one that does not answer anyway.
var (
	inOrder = proc.Step{Signal: syscall.SIGTERM, Wait: termWait}
	hung    = proc.Step{Signal: syscall.SIGTERM, Wait: hungWait}
)

// Options say where and how to run Redis.
type Options struct {
	// Dir holds everything of the server and is created if missing.
	Dir string
	// Binaries come from [apt.Ensure].
	Binaries apt.Binaries
	// Cluster makes it a node of a Redis Cluster, which does not answer for keys until
	// the cluster is formed. The nodes of one share a Password.
	Cluster  bool
	Password string
	// Users have the rights given here and no others; the user of [Server.URL] may do
	// everything. All have its password, and stay for starts without Users.
	Users map[string]rights.Rights
}

// Server is a running Redis server.
type Server struct {
	dir      string
	password string
	port     int
	cluster  bool
	busPort  int // of a cluster's node
	inUse    *proc.Held

	stopping sync.Mutex
	running  *proc.Child // nil once stopped
}

// Start returns a Redis server that answers. It keeps its data in an append-only file
// flushed every second. A Dir serves one process at a time: a second one gets
// [proc.ErrInUse]. ctx bounds the start only; if it ends meanwhile, nothing is left
// running. Errors quote the server's log and say what to do.
func Start(ctx context.Context, o Options) (*Server, error) {
	dir, err := home.Make(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	r := &Server{dir: dir, cluster: o.Cluster, password: o.Password}
	if r.password == "" {
		r.password, err = home.Password(dir)
	}
	if err == nil {
		r.inUse, err = proc.TryLock(r.file(proc.UsersSuffix))
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
func (r *Server) URL() string { return r.URLAs("") }

// URLAs returns the connection string of one of the Users.
func (r *Server) URLAs(user string) string {
	return fmt.Sprintf("redis://%s:%s@%s/0", user, r.password, proc.Address(r.port))
}

// Ports returns where the server listens, and where a cluster's node talks to the others
// (0 outside a cluster).
func (r *Server) Ports() (port, bus int) { return r.port, r.busPort }

// Stop ends the server after it has written its data, and returns when its
// process is gone, within a minute at worst. Calling it again does nothing.
func (r *Server) Stop() error { return r.end(inOrder) }

// Kill ends the server at once, as a crash would. What it had written to its file is there
// at the next start.
func (r *Server) Kill() error { return r.end() }

func (r *Server) end(steps ...proc.Step) error {
	r.stopping.Lock()
	defer r.stopping.Unlock()
	if r.running == nil {
		return nil
	}
	if err := r.running.End(steps...); err != nil {
		return fmt.Errorf("stop Redis in %s: %w", r.dir, err)
	}
	r.running = nil
	return r.inUse.Close()
}

// Pause makes the server hang, until Resume. It returns when the server stands still.
func (r *Server) Pause() error { return r.running.Pause() }

// Resume ends a Pause.
func (r *Server) Resume() error { return r.running.Resume() }

func (r *Server) file(suffix string) string { return filepath.Join(r.dir, name+suffix) }
