// Package postgres starts a PostgreSQL server. Several processes may start it on the same
// directory at once (test binaries of many packages do): they share one server, which
// ends when the last of them stops it or is killed.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const (
	name = "postgres" // of its files, and of the program
	// databaseName names the superuser and the database alike.
	databaseName = "miniserver"

	backendsWait = 15 * time.Second // for the processes of a server that was killed
	backendsPoll = 200 * time.Millisecond
	readyTimeout = 60 * time.Second
	// adoptTimeout is how long a server left running may take to
	// answer before it is ended.
	adoptTimeout = 5 * time.Second
	fastWait     = 10 * time.Second
	quitWait     = 6 * time.Second // PostgreSQL itself kills after 5 s
)

// Ways to stop: "fast" rolls back and writes a checkpoint, "immediate" leaves the next
// start to recover.
var (
	fast      = proc.Step{Signal: syscall.SIGINT, Wait: fastWait}
	immediate = proc.Step{Signal: syscall.SIGQUIT, Wait: quitWait}
)

// Options say where and how to run PostgreSQL.
type Options struct {
	// Dir holds everything of the server and is created if missing.
	Dir string
	// Binaries come from [apt.Ensure].
	Binaries apt.Binaries
	// Durable keeps committed data through a crash of the machine. Without it
	// (fsync, synchronous_commit and full_page_writes off) tests run faster,
	// and a crash may cost the whole database.
	Durable bool
	// Log, if not nil, gets messages about servers left running.
	Log *slog.Logger
}

// Server is a running PostgreSQL server.
type Server struct {
	dir      string
	data     string
	account  *home.Account
	password string
	port     int
	users    *proc.Users

	stopping sync.Mutex
	running  *proc.Child // nil once stopped
}

// Start returns a PostgreSQL server with an empty or earlier filled
// database "miniserver" (UTF-8, sorted by code point) and a superuser of the
// same name, ready for connections. It creates the database cluster the first
// time, and uses the server that another process runs on the same Dir. ctx bounds the
// start only; when it ends meanwhile, nothing is left running. Errors quote the
// server's log and say what to do.
func Start(ctx context.Context, o Options) (*Server, error) {
	dir, err := home.Make(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	starting, err := proc.Lock(ctx, filepath.Join(dir, name+proc.StartSuffix))
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	defer starting.Close()
	p := &Server{dir: dir}
	if err := p.start(ctx, o); err != nil {
		return nil, fmt.Errorf("start PostgreSQL in %s: %w", dir, err)
	}
	return p, nil
}

// URL returns the connection string, password included.
func (p *Server) URL() string { return p.databaseURL(databaseName) }

// URLAs returns the connection string of another login, which the caller creates with the
// same password.
func (p *Server) URLAs(login string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", login, p.password, proc.Address(p.port), databaseName)
}

func (p *Server) databaseURL(database string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", databaseName, p.password, proc.Address(p.port), database)
}

// Stop shuts the server down, harder if it takes longer than 10 s, and returns
// when its process is gone, within a minute at worst. If other processes
// started the same Dir and use it still, it leaves the server to them. Calling
// it again does nothing.
func (p *Server) Stop() error {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	if p.running == nil {
		return nil
	}
	if err := p.leave(); err != nil {
		return fmt.Errorf("stop PostgreSQL in %s: %w", p.dir, err)
	}
	p.running = nil
	return nil
}

// Kill ends the server's processes at once, as a crash would, whoever else uses it. Start
// recovers what was committed.
func (p *Server) Kill() error {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	if p.running == nil {
		return nil
	}
	if err := p.running.End(); err != nil {
		return fmt.Errorf("kill PostgreSQL in %s: %w", p.dir, err)
	}
	p.running = nil
	return p.users.Close()
}

func (p *Server) start(ctx context.Context, o Options) (err error) {
	if p.account, err = home.ServerAccount(); err != nil {
		return err
	}
	if p.password, err = home.Password(p.dir); err != nil {
		return err
	}
	at, err := home.Data(p.dir, p.account)
	if err != nil {
		return err
	}
	p.data = filepath.Join(at, home.DataName)
	if p.users, err = p.share(ctx); err != nil {
		return err
	}
	if err = p.adoptOrRun(ctx, o); err != nil {
		p.users.Close()
	}
	return err
}

// share joins the server's users. After the last user has left, the watcher admits none
// until the server is gone; a server that hangs is ended here.
func (p *Server) share(ctx context.Context) (*proc.Users, error) {
	path := filepath.Join(p.dir, name+proc.UsersSuffix)
	soon, cancel := context.WithTimeoutCause(ctx, adoptTimeout, proc.ErrInUse)
	defer cancel()
	users, err := proc.Share(soon, path)
	if !errors.Is(err, proc.ErrInUse) {
		return users, err
	}
	if left := p.leftRunning(); left != nil {
		if err := left.End(immediate); err != nil {
			return nil, err
		}
	}
	soon, cancel = context.WithTimeoutCause(ctx, adoptTimeout, proc.ErrInUse)
	defer cancel()
	return proc.Share(soon, path)
}
