package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// erlang is the unpacked tree of the server's packages.
type erlang struct{ tree, libraries string }

// only returns the one path in the tree that matches: versions are part of names.
func (e erlang) only(pattern string) (string, error) {
	found, _ := filepath.Glob(filepath.Join(e.tree, pattern))
	if len(found) != 1 {
		return "", fmt.Errorf("%s holds %d of %s; delete it and try again", e.tree, len(found), pattern)
	}
	return found[0], nil
}

// endLeftRunning ends the processes that our pid files tell of, if they really run.
func (r *RabbitMQ) endLeftRunning() error {
	var failures []error
	for name, p := range map[string]*process{
		erlangProgram: adopt(r.rememberedPid(".pid"), erlangProgram, r.dir),
		epmdProgram:   adopt(r.rememberedPid(".epmd.pid"), epmdProgram, strconv.Itoa(rememberedPort(r.file(".epmd.port")))),
	} {
		if p != nil {
			if err := p.end(rabbitStop...); err != nil {
				failures = append(failures, fmt.Errorf("end the %s left running: %w", name, err))
			}
		}
	}
	return errors.Join(failures...)
}

func (r *RabbitMQ) rememberedPid(suffix string) int {
	text, _ := os.ReadFile(r.file(suffix))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid // 0 is nobody's
}

func (r *RabbitMQ) rememberPid(suffix string, p *process) error {
	return os.WriteFile(r.file(suffix), []byte(strconv.Itoa(p.handle.Pid)+"\n"), privateFileMode)
}

// run starts the port mapper, and the server on r.port, and waits until it answers.
func (r *RabbitMQ) run(ctx context.Context, e erlang) error {
	bin, err := e.only("usr/lib/erlang/erts-*/bin")
	if err != nil {
		return err
	}
	script, err := e.only("usr/lib/rabbitmq/lib/*/sbin/rabbitmq-server")
	if err != nil {
		return err
	}
	mapperPort, err := onFreePort(0, r.file(".epmd.port"), func(port int) error { return r.runMapper(ctx, e, bin, port) })
	if err != nil {
		return err
	}
	err = r.runServer(ctx, e, bin, script, mapperPort)
	if err != nil {
		err = errors.Join(err, r.mapper.end(epmdStop...))
	}
	return err
}

// runMapper starts an epmd of our own: the server would start one that outlives it.
func (r *RabbitMQ) runMapper(ctx context.Context, e erlang, bin string, port int) error {
	cmd := exec.Command(filepath.Join(bin, epmdProgram), "-address", loopback, "-port", strconv.Itoa(port))
	cmd.Env = serverEnv(e.libraries)
	var err error
	if r.mapper, err = launch(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	err = errors.Join(r.rememberPid(".epmd.pid", r.mapper), r.mapper.waitReady(ctx, epmdReadyTimeout, accepts(port)))
	if errors.Is(err, errExited) {
		return errPortTaken // it has no other reason
	}
	if err != nil {
		return errors.Join(err, r.mapper.end(epmdStop...))
	}
	return nil
}

func (r *RabbitMQ) runServer(ctx context.Context, e erlang, bin, script string, mapperPort int) error {
	if err := r.configure(e, bin, mapperPort); err != nil {
		return err
	}
	r.scripts = filepath.Dir(script)
	out, log, err := openLog(r.file(".log"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(script)
	cmd.Env, cmd.Stdout, cmd.Stderr = r.env, out, out
	proc, err := launch(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	err = errors.Join(r.rememberPid(".pid", proc), proc.waitReady(ctx, rabbitReadyTimeout, r.hello))
	if err == nil {
		r.proc = proc
		return nil
	}
	err = errors.Join(err, proc.end(rabbitStop...))
	printed := log.tail()
	if strings.Contains(printed, "eaddrinuse") {
		return fmt.Errorf("%w (port %d)", errPortTaken, r.port)
	}
	if ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w; the end of %s:\n%s\nTo start with an empty RabbitMQ delete %s", err, log.path, printed, filepath.Join(r.dir, rabbitName))
}

// hello begins a conversation, as the protocol's section 4.2.2 has it, and expects
// the server's first method.
func (r *RabbitMQ) hello(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rabbitHelloTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp4", hostPort(r.port))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, "AMQP\x00\x00\x09\x01"); err != nil {
		return err
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return err
	}
	if first[0] != 1 { // a method frame
		return fmt.Errorf("rabbitmq answers %q", first)
	}
	return nil
}
