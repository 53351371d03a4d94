// Package nats runs a NATS server with JetStream inside this process.
package nats

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/pkg/rights"
)

const (
	name  = "nats" // of its files
	owner = "miniserver"

	readyTimeout = 10 * time.Second
	stopTimeout  = 10 * time.Second

	memoryBytes = 256 << 20
	storeBytes  = 8 << 30
)

// Options say where and how to run NATS.
type Options struct {
	// Dir holds the JetStream store and is created if missing.
	Dir string
	// Port to listen on if it is free; 0 for the one used last time, or any.
	Port int
	// Host is the address to listen on, and Peers are those of the other servers of a
	// cluster, all of which have one Password. Without them it is alone, on loopback.
	Host     string
	Peers    []string
	Password string
	// Users have the rights given here and no others; the user of [Server.URL] may do
	// everything. All have its password.
	Users map[string]rights.Rights
	// Complain, if set, gets what the server warns of.
	Complain io.Writer
}

// Server is a NATS server with JetStream inside this process.
type Server struct {
	o        Options
	dir      string
	password string
	port     int
	inUse    *proc.Held

	stopping sync.Mutex
	server   *server.Server // nil once stopped
}

// Start returns a NATS server, ready for connections, whose streams are
// kept in files in Dir (8 GiB at most, and 256 MiB in memory). It handles no
// signals and prints nothing, except to Complain. A Dir serves one NATS at a time: a
// second one gets [proc.ErrInUse]. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Server, error) {
	dir, err := home.Make(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	o.Host = cmp.Or(o.Host, proc.Loopback)
	n := &Server{o: o, dir: dir, password: o.Password}
	if err := n.start(ctx); err != nil {
		return nil, fmt.Errorf("start NATS in %s: %w", dir, err)
	}
	return n, nil
}

// URL returns the connection string, password included.
func (n *Server) URL() string { return n.URLAs(owner) }

// URLAs returns the connection string of one of the Users.
func (n *Server) URLAs(user string) string {
	return fmt.Sprintf("nats://%s:%s@%s", user, n.password, net.JoinHostPort(n.o.Host, strconv.Itoa(n.port)))
}

// Stop closes all connections and the store, and returns when that is done,
// with an error if it takes longer than 10 s. Calling it again does nothing.
func (n *Server) Stop() error {
	n.stopping.Lock()
	defer n.stopping.Unlock()
	if n.server == nil {
		return nil
	}
	if err := shutdown(n.server); err != nil {
		return fmt.Errorf("stop NATS in %s: %w", n.dir, err)
	}
	n.server = nil
	return n.inUse.Close()
}
