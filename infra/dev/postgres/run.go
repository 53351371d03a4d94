package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// adoptOrRun sets p.running and p.port to a server that answers.
func (p *Server) adoptOrRun(ctx context.Context, o Options) error {
	if left := p.leftRunning(); left != nil {
		left.FindWatcher(p.data) // it ends with the server, or it would wait for our lock
		err := left.WaitReady(ctx, adoptTimeout, p.ping)
		if ctx.Err() != nil {
			return err
		}
		if err == nil && p.durable() == o.Durable {
			o.info(ctx, "using the PostgreSQL that runs here", "dir", p.dir, "pid", left.Process.Pid)
			p.running = left
			return nil
		}
		if err == nil && !p.users.Sole() {
			return fmt.Errorf("%w: it was started with Durable=%t", proc.ErrInUse, !o.Durable)
		}
		steps, reason := []proc.Step{fast, immediate}, fmt.Sprintf("it was started with Durable=%t", !o.Durable)
		if err != nil {
			steps, reason = steps[1:], err.Error()
		}
		o.info(ctx, "ending the PostgreSQL that runs here", "dir", p.dir, "pid", left.Process.Pid, "reason", reason)
		if err := left.End(steps...); err != nil {
			return err
		}
		// Sole may have lost our share of the lock; the watcher ends with the server.
		if err := p.users.Again(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(p.disownPIDFile(), p.initialize(ctx, o)); err != nil {
		return err
	}
	_, err := proc.OnFreePort(0, filepath.Join(p.dir, name+".port"), func(port int) error {
		p.port = port
		return p.runAlone(ctx, o)
	})
	return err
}

// errBackendsLeft says that the previous server was killed and that some of its processes
// have not noticed yet.
var errBackendsLeft = errors.New("processes of the server before are still there")

// runAlone calls run when the processes of a killed server are gone. They end by
// themselves as soon as they have nothing to do.
func (p *Server) runAlone(ctx context.Context, o Options) error {
	for deadline := time.Now().Add(backendsWait); ; {
		err := p.run(ctx, o)
		if !errors.Is(err, errBackendsLeft) || time.Now().After(deadline) {
			return err
		}
		if proc.Sleep(ctx, backendsPoll) != nil {
			return err
		}
	}
}

// run starts the server on p.port and waits until it answers.
func (p *Server) run(ctx context.Context, o Options) error {
	cmd := exec.Command(filepath.Join(o.Binaries.PostgresDir, name), p.arguments(o.Durable)...)
	cmd.Env = append(proc.Environment(o.Binaries.PostgresLibraries), "PG_GRANDPARENT_PID="+strconv.Itoa(os.Getpid())) // see disownPIDFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account.Credential()}
	running, err := proc.Server{
		Command: cmd, Log: filepath.Join(p.dir, "postgres.log"), Ready: p.ping, Within: readyTimeout, Stop: []proc.Step{immediate},
		Users: p.users, Last: syscall.SIGINT,
		Advice: fmt.Sprintf("\nTo start with an empty database delete %s and %s", p.data, filepath.Join(p.dir, home.PasswordFile)),
	}.Start(ctx)
	if err == nil {
		p.running = running
		return nil
	}
	if strings.Contains(err.Error(), "pre-existing shared memory block") {
		err = errors.Join(errBackendsLeft, err)
	}
	return err
}

// info logs message, if there is a log.
func (o Options) info(ctx context.Context, message string, args ...any) {
	if o.Log != nil {
		o.Log.InfoContext(ctx, message, args...)
	}
}

// leftRunning returns the server that postmaster.pid names, if it really runs,
// and sets p.port to its port.
func (p *Server) leftRunning() *proc.Child {
	lines := p.pidFile()
	if len(lines) <= portLine {
		return nil
	}
	p.port, _ = strconv.Atoi(strings.TrimSpace(lines[portLine]))
	return proc.AdoptNoted(filepath.Join(p.data, pidFileName), name, p.data)
}

// The file in which PostgreSQL notes its pid and port, and the lines of these; see
// PostgreSQL's miscadmin.h.
const (
	pidFileName       = "postmaster.pid"
	pidLine, portLine = 0, 3
)

func (p *Server) pidFile() []string {
	b, err := os.ReadFile(filepath.Join(p.data, pidFileName))
	if err != nil {
		return nil
	}
	return strings.Split(string(b), "\n")
}

// disownPIDFile prepares a dead server's pid file for the next server. PostgreSQL does
// not start while the recorded pid exists, be it another program's or a zombie's, unless
// it is its grandparent's. Writing our pid, instead of deleting the file, keeps the check
// for backends that still run.
func (p *Server) disownPIDFile() error {
	lines := p.pidFile()
	if lines == nil {
		return nil
	}
	lines[pidLine] = strconv.Itoa(os.Getpid())
	return os.WriteFile(filepath.Join(p.data, pidFileName), []byte(strings.Join(lines, "\n")), home.PrivateFile)
}
