package dev

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
)

const (
	rabbitName    = "rabbitmq"
	rabbitUser    = "miniserver"
	erlangProgram = "beam.smp"
	epmdProgram   = "epmd"

	rabbitReadyTimeout = 60 * time.Second // it reads its queues first
	rabbitTermWait     = 20 * time.Second
	epmdReadyTimeout   = 5 * time.Second
	epmdTermWait       = 2 * time.Second
	rabbitHelloTimeout = time.Second
)

var (
	rabbitStop = []stopStep{{syscall.SIGTERM, rabbitTermWait}}
	epmdStop   = []stopStep{{syscall.SIGTERM, epmdTermWait}}

	// rabbitPackages are the server and what it needs of Erlang. The packages that
	// manage a service of the system are not among them.
	rabbitPackages = []string{
		"rabbitmq-server", "erlang-base", "erlang-asn1", "erlang-crypto", "erlang-eldap", "erlang-ftp", "erlang-inets",
		"erlang-mnesia", "erlang-os-mon", "erlang-parsetools", "erlang-public-key", "erlang-runtime-tools", "erlang-snmp",
		"erlang-ssl", "erlang-syntax-tools", "erlang-tftp", "erlang-tools", "erlang-xmerl",
	}
)

// RabbitMQOptions say where to run RabbitMQ.
type RabbitMQOptions struct {
	// Dir holds everything of the server and is created if missing.
	Dir string
	// Programs is where the server's packages are unpacked; the first start
	// downloads them, about 33 MB.
	Programs string
	// Progress, if not nil, is told of the download, a line a step.
	Progress io.Writer
}

// RabbitMQ is a running RabbitMQ server: one node, reachable on loopback only.
type RabbitMQ struct {
	dir      string
	password string
	port     int
	env      []string // of the server's programs
	scripts  string   // directory of them

	stopping sync.Mutex
	proc     *process // nil once stopped
	mapper   *process // Erlang's port mapper, without which no node starts
}

// StartRabbitMQ returns a RabbitMQ that takes connections. A server left running on
// the same Dir is ended first; one that is started again on the same Dir has the
// same address and its queues. ctx bounds the start only. Errors quote the server's
// log.
func StartRabbitMQ(ctx context.Context, o RabbitMQOptions) (*RabbitMQ, error) {
	dir, err := ownDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start RabbitMQ: %w", err)
	}
	starting, err := lock(ctx, filepath.Join(dir, rabbitName+startSuffix))
	if err != nil {
		return nil, fmt.Errorf("start RabbitMQ: %w", err)
	}
	defer starting.Close()
	tree, libraries, err := Unpacked(ctx, o.Programs, rabbitName, o.Progress, rabbitPackages...)
	if err != nil {
		return nil, err
	}
	r := &RabbitMQ{dir: dir}
	if r.password, err = password(dir); err == nil {
		err = r.endLeftRunning()
	}
	if err == nil {
		r.port, err = onFreePort(0, r.file(".port"), func(port int) error {
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
func (r *RabbitMQ) URL() string {
	return fmt.Sprintf("amqp://%s:%s@%s/", rabbitUser, r.password, hostPort(r.port))
}

// Stop ends the server after it has written its data, and returns when its
// processes are gone. Calling it again does nothing.
func (r *RabbitMQ) Stop() error { return r.end(rabbitStop) }

// Kill ends the server at once, as a power failure would.
func (r *RabbitMQ) Kill() error { return r.end(nil) }

func (r *RabbitMQ) end(steps []stopStep) error {
	r.stopping.Lock()
	defer r.stopping.Unlock()
	if r.proc == nil {
		return nil
	}
	err := errors.Join(r.proc.end(steps...), r.mapper.end(epmdStop...))
	if err != nil {
		return fmt.Errorf("stop RabbitMQ in %s: %w", r.dir, err)
	}
	r.proc, r.mapper = nil, nil
	return nil
}

// Control runs rabbitmqctl, the server's own tool for operators.
func (r *RabbitMQ) Control(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(r.scripts, "rabbitmqctl"), args...)
	cmd.Env = r.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("rabbitmqctl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Pause makes the server hang, until Resume.
func (r *RabbitMQ) Pause() error { return r.proc.handle.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (r *RabbitMQ) Resume() error { return r.proc.handle.Signal(syscall.SIGCONT) }

func (r *RabbitMQ) file(suffix string) string { return filepath.Join(r.dir, rabbitName+suffix) }
