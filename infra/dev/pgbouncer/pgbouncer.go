// Package pgbouncer starts a PgBouncer.
package pgbouncer

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

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const (
	name    = "pgbouncer" // of its package and its files
	program = "usr/sbin/pgbouncer"

	readyTimeout = 10 * time.Second
	termWait     = 5 * time.Second
)

var inOrder = proc.Step{Signal: syscall.SIGTERM, Wait: termWait}

// Options say where to run PgBouncer, and before which Postgres.
type Options struct {
	// Dir holds its configuration and log and is created if missing.
	Dir string
	// Programs is where its package is unpacked; the first start downloads it, about
	// 1 MB with its libraries.
	Programs string
	// Progress, if not nil, gets one line per step of the download.
	Progress io.Writer
	// Server is the URL of the Postgres server; its databases are reached by their names.
	Server string
	// Users are logins beside that of Server's URL, with the same password.
	Users []string
	// PoolSize is how many connections PgBouncer makes to each database, for each login.
	PoolSize int
}

// Server is a running PgBouncer in transaction mode: a client holds a connection to
// Postgres for one transaction. It is reachable on loopback only.
type Server struct {
	o      Options
	dir    string
	server *url.URL
	port   int

	users *proc.Users

	stopping sync.Mutex
	running  *proc.Child // nil once stopped
}

// Start returns a PgBouncer that takes connections. One that is started again
// on the same Dir has the same port. ctx bounds the start only. Errors quote its log.
func Start(ctx context.Context, o Options) (*Server, error) {
	b := &Server{o: o}
	var err error
	if b.dir, err = home.Make(o.Dir); err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	if b.server, err = url.Parse(o.Server); err != nil || b.server.User == nil {
		return nil, errors.New("start PgBouncer: the server's URL must have a user and a password")
	}
	tree, libraries, err := apt.Unpacked(ctx, o.Programs, name, o.Progress, name)
	if err != nil {
		return nil, err
	}
	if b.users, err = proc.Share(ctx, b.file(proc.StartSuffix)); err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	b.port, err = proc.OnFreePort(0, b.file(".port"), func(port int) error {
		b.port = port
		return b.run(ctx, filepath.Join(tree, program), libraries)
	})
	if err != nil {
		b.users.Close()
		return nil, fmt.Errorf("start PgBouncer in %s: %w", b.dir, err)
	}
	return b, nil
}

// URL returns the connection string of a database that databaseURL has on the server.
func (b *Server) URL(databaseURL string) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "", err
	}
	u.Host = proc.Address(b.port)
	return u.String(), nil
}

// Stop ends it at once, with its clients' connections. Calling it again does nothing.
func (b *Server) Stop() error {
	b.stopping.Lock()
	defer b.stopping.Unlock()
	if b.running == nil {
		return nil
	}
	if err := b.running.End(inOrder); err != nil {
		return fmt.Errorf("stop PgBouncer in %s: %w", b.dir, err)
	}
	b.running = nil
	return b.users.Close()
}

func (b *Server) file(suffix string) string { return filepath.Join(b.dir, name+suffix) }

func (b *Server) run(ctx context.Context, program, libraries string) error {
	if err := b.configure(); err != nil {
		return err
	}
	cmd := exec.Command(program, b.file(".ini"))
	cmd.Env = proc.Environment(libraries)
	running, err := proc.Server{
		Command: cmd, Log: b.file(".log"), Ready: proc.Accepts(b.port), Within: readyTimeout, Stop: []proc.Step{inOrder},
		Users: b.users, Last: syscall.SIGKILL,
	}.Start(ctx)
	if err == nil {
		b.running = running
	}
	return err
}

// configure writes the configuration and the password, which clients must give and
// PgBouncer gives to Postgres.
func (b *Server) configure() error {
	// As root it reads its files, and then runs as Postgres's account.
	user := ""
	if account, err := home.ServerAccount(); err != nil {
		return err
	} else if account != nil {
		user = "user = " + account.Name
	}
	quoted := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	password, _ := b.server.User.Password()
	var users strings.Builder
	for _, user := range append([]string{b.server.User.Username()}, b.o.Users...) {
		users.WriteString(quoted(user) + " " + quoted(password) + "\n")
	}
	return errors.Join(
		os.WriteFile(b.file(".users"), []byte(users.String()), home.PrivateFile),
		os.WriteFile(b.file(".ini"), fmt.Appendf(nil, ini, b.server.Hostname(), b.server.Port(), b.port, b.file(".users"), b.o.PoolSize, user), home.PrivateFile))
}

// ini has no logfile (it prints), no pid file and no Unix socket.
const ini = `[databases]
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
server_login_retry = 1
%s
`
