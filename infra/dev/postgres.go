package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	postgresName = "postgres"
	// databaseName names the superuser and the database alike.
	databaseName = "miniserver"

	// postgresReadyTimeout leaves room for crash recovery on a slow disk.
	postgresBackendsWait = 15 * time.Second // for the processes of a server that was killed
	postgresBackendsPoll = 200 * time.Millisecond
	postgresReadyTimeout = 60 * time.Second
	// postgresAdoptTimeout is how long a server left running may take to
	// answer before it is ended.
	postgresAdoptTimeout = 5 * time.Second
	postgresFastWait     = 10 * time.Second
	postgresQuitWait     = 6 * time.Second // PostgreSQL itself kills after 5 s
)

// postgresStop is the way down: "fast" rolls back and writes a checkpoint,
// "immediate" leaves the next start to recover.
var postgresStop = []stopStep{{syscall.SIGINT, postgresFastWait}, {syscall.SIGQUIT, postgresQuitWait}}

// PostgresOptions say where and how to run PostgreSQL.
type PostgresOptions struct {
	// Dir holds everything of the server and is created if missing.
	Dir string
	// Binaries come from [Ensure].
	Binaries Binaries
	// Durable keeps committed data through a crash of the machine. Without it
	// (fsync, synchronous_commit and full_page_writes off) tests run faster,
	// and a crash may cost the whole database.
	Durable bool
	// Log, if not nil, is told what happens to servers left running.
	Log *slog.Logger
}

// Postgres is a running PostgreSQL server.
type Postgres struct {
	dir      string
	data     string
	account  *account
	password string
	port     int
	users    *userLock

	stopping sync.Mutex
	proc     *process // nil once stopped
	watcher  *process // ends it when nobody uses it; nil where somebody killed that
}

// StartPostgres returns a PostgreSQL server with an empty or earlier filled
// database "miniserver" (UTF-8, sorted by code point) and a superuser of the
// same name, ready for connections. It creates the database cluster the first
// time, and uses the server that another process runs on the same Dir. ctx bounds the
// start only; when it ends meanwhile, nothing is left running. Errors quote the
// server's log and say what to do.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	dir, err := ownDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	starting, err := lock(ctx, filepath.Join(dir, postgresName+startSuffix))
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	defer starting.Close()
	p := &Postgres{dir: dir}
	if err := p.start(ctx, o); err != nil {
		return nil, fmt.Errorf("start PostgreSQL in %s: %w", dir, err)
	}
	return p, nil
}

// URL returns the connection string, password included.
func (p *Postgres) URL() string { return p.databaseURL(databaseName) }

// URLAs returns the connection string of another login with the same password, which
// the caller makes.
func (p *Postgres) URLAs(login string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", login, p.password, hostPort(p.port), databaseName)
}

func (p *Postgres) databaseURL(name string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", databaseName, p.password, hostPort(p.port), name)
}

// Stop shuts the server down, harder if it takes longer than 10 s, and returns
// when its process is gone, within a minute at worst. If other processes
// started the same Dir and use it still, it leaves the server to them. Calling
// it again does nothing.
func (p *Postgres) Stop() error {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	if p.proc == nil {
		return nil
	}
	err := stopShared(filepath.Join(p.dir, postgresName), p.users, p.proc, postgresStop)
	if err != nil {
		return fmt.Errorf("stop PostgreSQL in %s: %w", p.dir, err)
	}
	if p.watcher != nil && p.proc.gone() {
		p.watcher.waitGone(killWait)
	}
	p.proc = nil
	return nil
}

func (p *Postgres) start(ctx context.Context, o PostgresOptions) (err error) {
	if p.account, err = serverAccount(); err != nil {
		return err
	}
	if p.password, err = password(p.dir); err != nil {
		return err
	}
	home, err := dataHome(p.dir, p.account)
	if err != nil {
		return err
	}
	p.data = filepath.Join(home, dataName)
	if p.users, err = p.share(ctx); err != nil {
		return err
	}
	if err = p.adoptOrRun(ctx, o); err != nil {
		p.users.close()
	}
	return err
}

// share joins the server's users. When nobody was left its watcher lets nobody in
// until it is gone; one that hangs is ended here.
func (p *Postgres) share(ctx context.Context) (*userLock, error) {
	path := filepath.Join(p.dir, postgresName+usersSuffix)
	soon, cancel := context.WithTimeoutCause(ctx, postgresAdoptTimeout, ErrInUse)
	defer cancel()
	users, err := share(soon, path)
	if !errors.Is(err, ErrInUse) {
		return users, err
	}
	if left := p.leftRunning(); left != nil {
		if err := left.end(postgresStop[1:]...); err != nil {
			return nil, err
		}
	}
	soon, cancel = context.WithTimeoutCause(ctx, postgresAdoptTimeout, ErrInUse)
	defer cancel()
	return share(soon, path)
}
