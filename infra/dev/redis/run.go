package redis

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// start sets r.running and r.port to a server that answers. A server that another process
// left was killed with that process; it may still be ending.
func (r *Server) start(ctx context.Context, o Options) error {
	if left := proc.AdoptNoted(r.file(".pid"), program, r.file(".conf")); left != nil {
		if err := left.End(hung); err != nil {
			return err
		}
	}
	port, err := proc.OnFreePort(0, r.file(".port"), func(port int) error {
		r.port = port
		return r.run(ctx, o)
	})
	r.port = port
	return err
}

// run starts the server on r.port and waits until it answers.
func (r *Server) run(ctx context.Context, o Options) error {
	if err := r.configure(o.Users); err != nil {
		return err
	}
	cmd := exec.Command(o.Binaries.RedisServer, r.file(".conf"))
	cmd.Env = proc.Environment(o.Binaries.RedisLibraries)
	running, err := proc.Server{
		Command: cmd, Log: r.file(".log"), Ready: r.ping, Within: readyTimeout, Stop: []proc.Step{hung},
		Advice: "\nTo start with an empty Redis delete " + filepath.Join(r.dir, name),
	}.Start(ctx)
	if err == nil {
		r.running = running
	}
	return err
}

// ping logs in and sends PING, in the protocol's inline form: a client library would log
// every refused connection while the server starts.
func (r *Server) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp4", proc.Address(r.port))
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
