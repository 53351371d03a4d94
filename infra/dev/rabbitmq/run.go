package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
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

// endLeftRunning ends the processes that our pid files name, if they really run.
func (r *Server) endLeftRunning() error {
	var failures []error
	for name, left := range map[string]*proc.Child{
		erlangProgram: proc.AdoptNoted(r.file(".pid"), erlangProgram, r.dir),
		epmdProgram:   proc.AdoptNoted(r.file(".epmd.pid"), epmdProgram, strconv.Itoa(proc.RememberedPort(r.file(".epmd.port")))),
	} {
		if left != nil {
			if err := left.End(inOrder); err != nil {
				failures = append(failures, fmt.Errorf("end the %s left running: %w", name, err))
			}
		}
	}
	return errors.Join(failures...)
}

// run starts the port mapper, and the server on r.port, and waits until it answers.
func (r *Server) run(ctx context.Context, e erlang) error {
	bin, err := e.only("usr/lib/erlang/erts-*/bin")
	if err != nil {
		return err
	}
	script, err := e.only("usr/lib/rabbitmq/lib/*/sbin/rabbitmq-server")
	if err != nil {
		return err
	}
	mapperPort, err := proc.OnFreePort(0, r.file(".epmd.port"), func(port int) error { return r.runMapper(ctx, e, bin, port) })
	if err != nil {
		return err
	}
	err = r.runServer(ctx, e, bin, script, mapperPort)
	if err != nil {
		err = errors.Join(err, r.mapper.End(epmdStop))
	}
	return err
}

// runMapper starts an epmd of our own: the server would start one that outlives it.
func (r *Server) runMapper(ctx context.Context, e erlang, bin string, port int) error {
	cmd := exec.Command(filepath.Join(bin, epmdProgram), "-address", proc.Loopback, "-port", strconv.Itoa(port))
	cmd.Env = proc.Environment(e.libraries)
	var err error
	if r.mapper, err = proc.Launch(cmd); err != nil {
		return err
	}
	err = errors.Join(r.mapper.Note(r.file(".epmd.pid")), r.mapper.WaitReady(ctx, epmdReadyTimeout, proc.Accepts(port)))
	if errors.Is(err, proc.ErrExited) {
		return proc.ErrPortTaken // it has no other reason
	}
	if err != nil {
		return errors.Join(err, r.mapper.End(epmdStop))
	}
	return nil
}

func (r *Server) runServer(ctx context.Context, e erlang, bin, script string, mapperPort int) error {
	if err := r.configure(e, bin, mapperPort); err != nil {
		return err
	}
	r.scripts = filepath.Dir(script)
	cmd := exec.Command(script)
	cmd.Env = r.env
	running, err := proc.Server{
		Command: cmd, Log: r.file(".log"), Ready: r.hello, Within: readyTimeout, Stop: []proc.Step{inOrder},
		PIDFile: r.file(".pid"), Advice: "\nTo start with an empty RabbitMQ delete " + filepath.Join(r.dir, name),
	}.Start(ctx)
	if err == nil {
		r.running = running
	}
	return err
}

// hello begins a conversation (section 4.2.2 of the protocol) and expects the server's
// first method.
func (r *Server) hello(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp4", proc.Address(r.port))
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
