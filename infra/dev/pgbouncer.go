package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	bouncerName    = "pgbouncer"
	bouncerProgram = "usr/sbin/pgbouncer"

	bouncerReadyTimeout = 10 * time.Second
	bouncerTermWait     = 5 * time.Second
)

var bouncerStop = []stopStep{{syscall.SIGTERM, bouncerTermWait}}

// PgBouncerOptions say where to run PgBouncer, and before which Postgres.
type PgBouncerOptions struct {
	// Dir holds its configuration and log and is created if missing.
	Dir string
	// Programs is where its package is unpacked; the first start downloads it, about
	// 1 MB with its libraries.
	Programs string
	// Progress, if not nil, is told of the download, a line a step.
	Progress io.Writer
	// Server is the URL of the Postgres server; its databases are reached by their names.
	Server string
	// Users are logins beside that of Server's URL, with the same password.
	Users []string
	// PoolSize is how many connections PgBouncer makes to each database, for each login.
	PoolSize int
}

// PgBouncer is a running PgBouncer in transaction mode: a client has a connection to
// Postgres for the time of a transaction. It is reachable on loopback only.
type PgBouncer struct {
	o      PgBouncerOptions
	dir    string
	server *url.URL
	port   int

	users *userLock

	stopping sync.Mutex
	proc     *process // nil once stopped
	watcher  *process
}

// StartPgBouncer returns a PgBouncer that takes connections. One that is started again
// on the same Dir has the same port. ctx bounds the start only. Errors quote its log.
func StartPgBouncer(ctx context.Context, o PgBouncerOptions) (*PgBouncer, error) {
	b := &PgBouncer{o: o}
	var err error
	if b.dir, err = ownDir(o.Dir); err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	if b.server, err = url.Parse(o.Server); err != nil || b.server.User == nil {
		return nil, errors.New("start PgBouncer: the server's URL must have a user and a password")
	}
	tree, libraries, err := Unpacked(ctx, o.Programs, bouncerName, o.Progress, bouncerName)
	if err != nil {
		return nil, err
	}
	if b.users, err = share(ctx, b.file(startSuffix)); err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	b.port, err = onFreePort(0, b.file(".port"), func(port int) error {
		b.port = port
		return b.run(ctx, filepath.Join(tree, bouncerProgram), libraries)
	})
	if err != nil {
		b.users.close()
		return nil, fmt.Errorf("start PgBouncer in %s: %w", b.dir, err)
	}
	return b, nil
}

// URL returns the connection string of a database that databaseURL has on the server.
func (b *PgBouncer) URL(databaseURL string) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "", err
	}
	u.Host = hostPort(b.port)
	return u.String(), nil
}

// Stop ends it at once, with its clients' connections. Calling it again does nothing.
func (b *PgBouncer) Stop() error {
	b.stopping.Lock()
	defer b.stopping.Unlock()
	if b.proc == nil {
		return nil
	}
	if err := errors.Join(b.proc.end(bouncerStop...), b.watcher.endGroup()); err != nil {
		return fmt.Errorf("stop PgBouncer in %s: %w", b.dir, err)
	}
	b.proc = nil
	return b.users.close()
}

func (b *PgBouncer) file(suffix string) string { return filepath.Join(b.dir, bouncerName+suffix) }

func (b *PgBouncer) run(ctx context.Context, program, libraries string) error {
	if err := b.configure(); err != nil {
		return err
	}
	out, log, err := openLog(b.file(".log"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(program, b.file(".ini"))
	cmd.Env, cmd.Stdout, cmd.Stderr = serverEnv(libraries), out, out
	proc, watcher, err := launchWatched(cmd, b.users, syscall.SIGKILL)
	if err != nil {
		return err
	}
	err = proc.waitReady(ctx, bouncerReadyTimeout, accepts(b.port))
	if err == nil {
		b.proc, b.watcher = proc, watcher
		return nil
	}
	err = errors.Join(err, proc.end(bouncerStop...), watcher.endGroup())
	printed := log.tail()
	if strings.Contains(printed, "Address already in use") {
		return fmt.Errorf("%w (port %d)", errPortTaken, b.port)
	}
	return fmt.Errorf("%w; the end of %s:\n%s", err, log.path, printed)
}

// configure writes its configuration and the password that clients must have, which
// it also logs in to Postgres with.
func (b *PgBouncer) configure() error {
	// As root it reads its files, and goes on as the account that Postgres has.
	user := ""
	if account, err := serverAccount(); err != nil {
		return err
	} else if account != nil {
		user = "user = " + account.name
	}
	quoted := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	password, _ := b.server.User.Password()
	var users strings.Builder
	for _, user := range append([]string{b.server.User.Username()}, b.o.Users...) {
		users.WriteString(quoted(user) + " " + quoted(password) + "\n")
	}
	return errors.Join(
		os.WriteFile(b.file(".users"), []byte(users.String()), privateFileMode),
		os.WriteFile(b.file(".ini"), fmt.Appendf(nil, bouncerINI, b.server.Hostname(), b.server.Port(), b.port, b.file(".users"), b.o.PoolSize, user), privateFileMode))
}

// bouncerINI has no logfile (it prints), no pid file and no Unix socket.
const bouncerINI = `[databases]
* = host=%s port=%s

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
%s
`
