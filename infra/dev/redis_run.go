package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// start sets r.proc and r.port to a server that answers. One that another process
// left was killed with it; it may be on its way out.
func (r *Redis) start(ctx context.Context, o RedisOptions) error {
	if left := r.leftRunning(); left != nil {
		if err := left.end(redisHungStop...); err != nil {
			return err
		}
	}
	port, err := onFreePort(0, r.file(".port"), func(port int) error {
		r.port = port
		return r.run(ctx, o)
	})
	r.port = port
	return err
}

// leftRunning returns the server our pid file tells of, if it really runs.
func (r *Redis) leftRunning() *process {
	b, err := os.ReadFile(r.file(".pid"))
	if err != nil {
		return nil
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return nil
	}
	return adopt(pid, redisProgram, r.file(".conf"))
}

// run starts the server on r.port and waits until it answers.
func (r *Redis) run(ctx context.Context, o RedisOptions) error {
	if err := r.configure(o.Users); err != nil {
		return err
	}
	out, log, err := openLog(r.file(".log"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(o.Binaries.RedisServer, r.file(".conf"))
	cmd.Env = serverEnv(o.Binaries.RedisLibraries)
	cmd.Stdout, cmd.Stderr = out, out
	proc, err := launch(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	err = proc.waitReady(ctx, redisReadyTimeout, r.ping)
	if err == nil {
		r.proc = proc
		return nil
	}
	err = errors.Join(err, proc.end(redisHungStop...))
	printed := log.tail()
	if strings.Contains(printed, "Address already in use") {
		return fmt.Errorf("%w (port %d)", errPortTaken, r.port)
	}
	if ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w; the end of %s:\n%s\nTo start with an empty Redis delete %s",
		err, log.path, printed, filepath.Join(r.dir, redisName))
}

// ping logs in and asks for a sign of life, in the protocol's inline form: a
// client library would log every refused connection while the server starts.
func (r *Redis) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, redisPingTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp4", hostPort(r.port))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\nPING\r\n", r.password); err != nil {
		return err
	}
	answers := bufio.NewReader(conn)
	for _, want := range []string{"+OK\r\n", "+PONG\r\n"} {
		line, err := answers.ReadString('\n')
		if err != nil {
			return err
		}
		if line != want {
			return fmt.Errorf("redis answers %q", line)
		}
	}
	return nil
}
