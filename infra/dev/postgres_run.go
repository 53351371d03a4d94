package dev

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
)

// adoptOrRun sets p.proc and p.port to a server that answers.
func (p *Postgres) adoptOrRun(ctx context.Context, o PostgresOptions) error {
	if left := p.leftRunning(); left != nil {
		err := left.waitReady(ctx, postgresAdoptTimeout, p.ping)
		if ctx.Err() != nil {
			return err
		}
		if err == nil && p.durable() == o.Durable {
			logTo(o.Log, ctx, "using the PostgreSQL that runs here", "dir", p.dir, "pid", left.handle.Pid)
			p.proc, p.watcher = left, left.parent("sh", p.data)
			return nil
		}
		if err == nil && !p.users.sole() {
			return fmt.Errorf("%w: it was started with Durable=%t", ErrInUse, !o.Durable)
		}
		logTo(o.Log, ctx, "ending the PostgreSQL that runs here", "dir", p.dir, "pid", left.handle.Pid, "reason", err)
		steps := postgresStop
		if err != nil {
			steps = steps[1:]
		}
		if err := left.end(steps...); err != nil {
			return err
		}
		// Asking who uses it may have cost our share; its watcher ends with it.
		if err := p.users.again(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(p.disownPIDFile(), p.initialize(ctx, o)); err != nil {
		return err
	}
	_, err := onFreePort(0, filepath.Join(p.dir, postgresName+".port"), func(port int) error {
		p.port = port
		return p.runAlone(ctx, o)
	})
	return err
}

// errBackendsLeft says that the server before this one was killed and that some of
// its processes have not noticed yet.
var errBackendsLeft = errors.New("processes of the server before are still there")

// runAlone is run, once the processes of a server that was killed are gone. They
// end by themselves as soon as they have nothing to do.
func (p *Postgres) runAlone(ctx context.Context, o PostgresOptions) error {
	for deadline := time.Now().Add(postgresBackendsWait); ; {
		err := p.run(ctx, o)
		if !errors.Is(err, errBackendsLeft) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(postgresBackendsPoll):
		}
	}
}

// run starts the server on p.port and waits until it answers.
func (p *Postgres) run(ctx context.Context, o PostgresOptions) error {
	out, log, err := openLog(filepath.Join(p.dir, "postgres.log"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(o.Binaries.PostgresDir, postgresName), p.arguments(o.Durable)...)
	cmd.Env = append(serverEnv(o.Binaries.PostgresLibraries), "PG_GRANDPARENT_PID="+strconv.Itoa(os.Getpid())) // see disownPIDFile
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account.credential()}
	proc, watcher, err := launchWatched(cmd, p.users, syscall.SIGINT)
	if err != nil {
		return err
	}
	err = proc.waitReady(ctx, postgresReadyTimeout, p.ping)
	if err == nil {
		p.proc, p.watcher = proc, watcher
		return nil
	}
	err = errors.Join(err, proc.end(postgresStop[1:]...), watcher.endGroup())
	printed := log.tail()
	if strings.Contains(printed, "Address already in use") {
		return fmt.Errorf("%w (port %d)", errPortTaken, p.port)
	}
	if ctx.Err() != nil {
		return err
	}
	if strings.Contains(printed, "pre-existing shared memory block") {
		err = errors.Join(errBackendsLeft, err)
	}
	return fmt.Errorf("%w; the end of %s:\n%s\nTo start with an empty database delete %s and %s",
		err, log.path, printed, p.data, filepath.Join(p.dir, passwordFile))
}

// leftRunning returns the server postmaster.pid tells of, if it really runs,
// and sets p.port to its port.
func (p *Postgres) leftRunning() *process {
	lines := p.pidFile()
	if len(lines) <= portLine {
		return nil
	}
	pid, err := strconv.Atoi(strings.TrimSpace(lines[pidLine]))
	if err != nil {
		return nil
	}
	p.port, _ = strconv.Atoi(strings.TrimSpace(lines[portLine]))
	return adopt(pid, postgresName, p.data)
}

// The file in which PostgreSQL says where it runs, and two of its lines; see
// PostgreSQL's miscadmin.h.
const (
	pidFileName       = "postmaster.pid"
	pidLine, portLine = 0, 3
)

func (p *Postgres) pidFile() []string {
	b, err := os.ReadFile(filepath.Join(p.data, pidFileName))
	if err != nil {
		return nil
	}
	return strings.Split(string(b), "\n")
}

// disownPIDFile prepares the file of a server that is gone for the next one.
// PostgreSQL does not start while the recorded pid exists, be it another
// program's or a zombie's, unless it is that of its grandparent. Saying so,
// instead of deleting the file, keeps its check for backends that still run.
func (p *Postgres) disownPIDFile() error {
	lines := p.pidFile()
	if lines == nil {
		return nil
	}
	lines[pidLine] = strconv.Itoa(os.Getpid())
	return os.WriteFile(filepath.Join(p.data, pidFileName), []byte(strings.Join(lines, "\n")), privateFileMode)
}
