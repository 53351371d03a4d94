// Package rabbitmq starts a RabbitMQ server.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	name          = "rabbitmq" // of its files
	owner         = "miniserver"
	erlangProgram = "beam.smp"
	epmdProgram   = "epmd"

	readyTimeout     = 3 * time.Minute // it reads its queues first
	termWait         = 20 * time.Second
	epmdReadyTimeout = 30 * time.Second
	epmdTermWait     = 2 * time.Second
	helloTimeout     = time.Second
)

var (
	inOrder  = proc.Step{Signal: syscall.SIGTERM, Wait: termWait}
	epmdStop = proc.Step{Signal: syscall.SIGTERM, Wait: epmdTermWait}

	// packages are the server and the parts of Erlang that it needs, without those that
	// manage a service of the system.
	packages = []string{
		"rabbitmq-server", "erlang-base", "erlang-asn1", "erlang-crypto", "erlang-eldap", "erlang-ftp", "erlang-inets",
		"erlang-mnesia", "erlang-os-mon", "erlang-parsetools", "erlang-public-key", "erlang-runtime-tools", "erlang-snmp",
		"erlang-ssl", "erlang-syntax-tools", "erlang-tftp", "erlang-tools", "erlang-xmerl",
	}
)

// Options say where to run RabbitMQ.
type Options struct {
	// Dir holds everything of the server and is created if missing.
	Dir string
	// Programs is where the server's packages are unpacked; the first start
	// downloads them, about 33 MB.
	Programs string
	// Progress, if not nil, gets one line per step of the download.
	Progress io.Writer
}

// Server is a running RabbitMQ server: one node, reachable on loopback only.
type Server struct {
	dir      string
	password string
	port     int
	env      []string // of the server's programs
	scripts  string   // directory of them

	stopping sync.Mutex
	running  *proc.Child // nil once stopped
	mapper   *proc.Child // Erlang's port mapper, without which no node starts
}

// Start returns a RabbitMQ that takes connections. A server left running on
// the same Dir is ended first; one that is started again on the same Dir has the
// same address and its queues. ctx bounds the start only. Errors quote the server's
// log.
func Start(ctx context.Context, o Options) (*Server, error) {
	dir, err := home.Make(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start RabbitMQ: %w", err)
	}
	starting, err := proc.Lock(ctx, filepath.Join(dir, name+proc.StartSuffix))
	if err != nil {
		return nil, fmt.Errorf("start RabbitMQ: %w", err)
	}
	defer starting.Close()
	tree, libraries, err := apt.Unpacked(ctx, o.Programs, name, o.Progress, packages...)
	if err != nil {
		return nil, err
	}
	r := &Server{dir: dir}
	if r.password, err = home.Password(dir); err == nil {
		err = r.endLeftRunning()
	}
	if err == nil {
		r.port, err = proc.OnFreePort(0, r.file(".port"), func(port int) error {
			r.port = port
			return r.run(ctx, erlang{tree, libraries})
		})
	}
	if err != nil {
		return nil, fmt.Errorf("start RabbitMQ in %s: %w", dir, err)
	}
	return r, nil
}

// URL returns the connection string, password included.
func (r *Server) URL() string {
	return fmt.Sprintf("amqp://%s:%s@%s/", owner, r.password, proc.Address(r.port))
}

// Stop ends the server after it has written its data, and returns when its
// processes are gone. Calling it again does nothing.
func (r *Server) Stop() error { return r.end(inOrder) }

// Kill ends the server at once, as a power failure would.
func (r *Server) Kill() error { return r.end() }

func (r *Server) end(steps ...proc.Step) error {
	r.stopping.Lock()
	defer r.stopping.Unlock()
	if r.running == nil {
		return nil
	}
	err := errors.Join(r.running.End(steps...), r.mapper.End(epmdStop))
	if err != nil {
		return fmt.Errorf("stop RabbitMQ in %s: %w", r.dir, err)
	}
	r.running, r.mapper = nil, nil
	return nil
}

// Control runs rabbitmqctl, the server's own tool for operators.
func (r *Server) Control(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(r.scripts, "rabbitmqctl"), args...)
	cmd.Env = r.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("rabbitmqctl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Pause makes the server hang, until Resume. It returns when the server stands still.
func (r *Server) Pause() error { return r.running.Pause() }

// Resume ends a Pause.
func (r *Server) Resume() error { return r.running.Resume() }

func (r *Server) file(suffix string) string { return filepath.Join(r.dir, name+suffix) }
